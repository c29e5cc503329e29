"""How this machine's cores are best divided among embedding processes, as measured on it.

``embedmill doctor --bench`` measures and keeps it, for each machine and model, among the files that
are made once; a run without a measurement does what was best on the machines that we know.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from embedmill.made_once import replace_file, shared_file
from embedmill.processors import cpu_flags, cpu_name, usable_cores
from embedmill.recipe import fingerprint_of

log = logging.getLogger(__name__)
# Of the fastest; what is nearer to it than this is as fast, for all that a few rounds can tell.
_AS_FAST = 0.97


@dataclass(frozen=True, slots=True)
class EmbeddingLayout:
    """A division of one machine's cores.

    Attributes:
        processes: beside each other, each with its own model.
        threads: of each process.
        streams: batches that a process computes beside each other, where it computes in streams.
    """

    processes: int
    threads: int
    streams: int


@dataclass(frozen=True, slots=True)
class MeasuredLayout:
    """What a division does.

    Attributes:
        backend: what computes.
        dtype: in which numbers.
        layout: the division.
        texts_per_s: of all processes together.
    """

    backend: str
    dtype: str
    layout: EmbeddingLayout
    texts_per_s: float


def keep_layouts(revision: str, measured: Sequence[MeasuredLayout]) -> Path:
    """Keep measurements of a model, instead of all earlier ones on this machine.

    Args:
        revision: of the model's weights.
        measured: all that was measured.

    Returns:
        The file that has them now; deleting it forgets them.
    """
    path = _file_of(revision)
    replace_file(path, orjson.dumps([asdict(each) for each in measured]))
    return path


def best_layout(revision: str, backend: str, dtype: str) -> EmbeddingLayout | None:
    """The division that was fastest here; None where nothing was measured.

    Of those that are as fast, the one with the fewest processes: each holds the model once more.
    """
    found = _measured(revision, backend, dtype)
    return _best(found).layout if found else None


def best_streams(revision: str, backend: str, dtype: str, threads: int) -> int | None:
    """Streams of a process with so many threads that were fastest here; None where not measured."""
    found = [each for each in _measured(revision, backend, dtype) if each.layout.threads == threads]
    return _best(found).layout.streams if found else None


def _best(found: Sequence[MeasuredLayout]) -> MeasuredLayout:
    fastest = max(each.texts_per_s for each in found)
    near = [each for each in found if each.texts_per_s >= _AS_FAST * fastest]
    return min(near, key=lambda each: (each.layout.processes, -each.layout.streams))


def _measured(revision: str, backend: str, dtype: str) -> list[MeasuredLayout]:
    path = _file_of(revision)
    try:
        rows = orjson.loads(path.read_bytes())
        found = [
            MeasuredLayout(
                row["backend"], row["dtype"], EmbeddingLayout(**row["layout"]), row["texts_per_s"]
            )
            for row in rows
        ]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning(
            "%s cannot be used (%s): the default division of cores is taken; embedmill doctor "
            "--bench measures again",
            path,
            error,
        )
        return []
    return [each for each in found if (each.backend, each.dtype) == (backend, dtype)]


def _file_of(revision: str) -> Path:
    facts = [revision, cpu_name(), sorted(cpu_flags()), usable_cores()]
    return shared_file(f"layouts-{fingerprint_of(facts)}.json")
