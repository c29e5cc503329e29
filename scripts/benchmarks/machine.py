"""What a command and all its processes use: time, memory, and what else the machine did."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import psutil

_MIB = 2**20


class BenchError(Exception):
    """A measurement that cannot be made; says why."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One command, from outside.

    Attributes:
        answer: the JSON object that it printed last.
        seconds: from its start to its end.
        peak_bytes: most memory of all its processes at one moment.
        at_peak: what its largest processes had then: name and bytes.
        own_cpu_s: that its processes used, as far as they were seen alive.
        others_cpu_s: that all other processes of the machine used meanwhile.
    """

    answer: dict[str, Any]
    seconds: float
    peak_bytes: int
    at_peak: tuple[tuple[str, int], ...]
    own_cpu_s: float
    others_cpu_s: float

    @property
    def others(self) -> str:
        """What else the machine did, for a person."""
        share = self.others_cpu_s / self.seconds if self.seconds else 0.0
        return f"{share:.2f} of {psutil.cpu_count()} cores"


def measured(
    module: str, arguments: Sequence[str], folder: Path, *, timeout_s: float, period_s: float
) -> Measured:
    """Run a module of this package in a process of its own, and watch it.

    Args:
        module: its name, such as ``benchmarks.one_ingest``.
        arguments: of its command line.
        folder: where its standard error is kept meanwhile.
        timeout_s: then it and all its processes are ended.
        period_s: between two looks at its processes; one look costs some milliseconds of another
            core than theirs.

    Raises:
        BenchError: it failed, or took too long.
    """
    command = [sys.executable, "-m", module, *arguments]
    log = folder / "stderr.txt"
    watch = _Watch()
    with log.open("wb") as errors, _child(command, subprocess.PIPE, errors.fileno()) as child:
        _watched(child, watch, timeout_s, period_s)
    _require_success(child, command, log)
    assert child.stdout is not None
    # A line of JSON fits the pipe, so that the child never waits for it to be read.
    return watch.result(orjson.loads(child.stdout.read().splitlines()[-1]))


def measured_command(
    command: Sequence[str],
    folder: Path,
    *,
    timeout_s: float,
    period_s: float,
    environment: Mapping[str, str],
) -> Measured:
    """Run any command with its processes, and watch it; its answer is empty.

    Args:
        command: with its arguments.
        folder: where what it prints is kept meanwhile.
        timeout_s: see :func:`measured`.
        period_s: see :func:`measured`.
        environment: all that it has.

    Raises:
        BenchError: it failed, or took too long.
    """
    log = folder / "output.txt"
    watch = _Watch()
    with (
        log.open("wb") as output,
        _child(command, output.fileno(), output.fileno(), environment) as child,
    ):
        _watched(child, watch, timeout_s, period_s)
    _require_success(child, command, log)
    return watch.result({})


def _require_success(child: subprocess.Popen[bytes], command: Sequence[str], log: Path) -> None:
    if child.returncode != 0:
        tail = log.read_text(errors="replace")[-4000:]
        raise BenchError(f"{' '.join(command)} ended with {child.returncode}:\n{tail}")


@contextlib.contextmanager
def _child(
    command: Sequence[str], output: int, errors: int, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen(command, stdout=output, stderr=errors, env=environment)  # noqa: S603 (ours)
    try:
        yield child
    finally:
        if child.poll() is None:
            _end(child)


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a command with everything that it started."""
    for process in [*_tree(child.pid)][::-1]:
        with contextlib.suppress(psutil.Error):
            process.kill()
    child.wait()


def _watched(
    child: subprocess.Popen[bytes], watch: _Watch, timeout_s: float, period_s: float
) -> None:
    deadline = time.monotonic() + timeout_s
    while child.poll() is None:
        watch.look(child.pid)
        if time.monotonic() > deadline:
            _end(child)
            raise BenchError(f"not done after {timeout_s:g} s (--timeout)")
        # Awake as soon as it ends: a run of half a second is not rounded up to the period.
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(period_s)


class _Watch:
    def __init__(self) -> None:
        self._started = time.monotonic()
        self._busy = _busy_s()
        self._watching = sum(os.times()[:2])
        self._cpu: dict[tuple[int, float], float] = {}
        self._peak = 0
        self._at_peak: tuple[tuple[str, int], ...] = ()

    def look(self, pid: int) -> None:
        sizes: Counter[str] = Counter()
        for process in _tree(pid):
            with contextlib.suppress(psutil.Error):
                used = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = used.user + used.system
                sizes[f"{_name(process)} {process.pid}"] = resident_bytes(process)
        if sizes.total() > self._peak:
            self._peak = sizes.total()
            self._at_peak = tuple(sizes.most_common(8))

    def result(self, answer: dict[str, Any]) -> Measured:
        own = sum(self._cpu.values())
        watching = sum(os.times()[:2])
        return Measured(
            answer=answer,
            seconds=time.monotonic() - self._started,
            peak_bytes=self._peak,
            at_peak=self._at_peak,
            own_cpu_s=own,
            others_cpu_s=max(0.0, _busy_s() - self._busy - own - (watching - self._watching)),
        )


def _tree(pid: int) -> Iterator[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid)
        yield root
        yield from root.children(recursive=True)


def _name(process: psutil.Process) -> str:
    line = process.cmdline() or [process.name()]
    return re.sub(r"^.*/", "", line[0].split(" ")[0]) or process.name()


def resident_bytes(process: psutil.Process) -> int:
    """Memory of one process so that those of several add up.

    The proportional set size: what processes share is divided among them. Where the system does
    not tell it, the resident set without what is shared. Files that were read count in neither.
    """
    pss = getattr(process.memory_full_info(), "pss", None)
    if pss is not None:
        return int(pss)
    info = process.memory_info()
    return int(info.rss - getattr(info, "shared", 0))


def _busy_s() -> float:
    """Processor seconds that all processes of the machine have used."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))


def others_cores(runs: Sequence[Measured]) -> float:
    """Cores that the machine's other processes used on average during these runs."""
    seconds = sum(run.seconds for run in runs)
    return sum(run.others_cpu_s for run in runs) / seconds if seconds else 0.0


def mib(size: float) -> str:
    """Bytes for a person."""
    return f"{size / _MIB:,.0f} MiB"
