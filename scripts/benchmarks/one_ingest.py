"""One ingest in a process of its own; prints its times as one line of JSON.

Usage: ``python -m benchmarks.one_ingest SETTINGS.json ray|inline``
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import orjson

from embedmill.executor import Executor, InlineExecutor
from embedmill.settings import Settings
from pipelines.ingest import ingest


def main() -> None:
    """Start the executor, ingest, say how long each took."""
    path, name = sys.argv[1:]
    settings = Settings.model_validate_json(Path(path).read_bytes())
    before = time.time()
    executor = _executor(name, settings)
    ready = time.time()
    try:
        report = ingest(settings, executor)
        done = time.time()
    finally:
        closing = time.time()
        executor.close()
    answer = {
        "executor_start_s": ready - before,
        # Wall clock, to be compared with the times of the files that were written.
        "started": ready,
        "ingest_s": done - ready,
        "executor_end_s": time.time() - closing,
        "report": report.to_json(),
    }
    print(orjson.dumps(answer).decode())


def _executor(name: str, settings: Settings) -> Executor:
    if name == "inline":
        return InlineExecutor()
    from actors.actor_pool import Deadlines, RayExecutor

    run = settings.run
    return RayExecutor(
        object_store_bytes=run.object_store_bytes,
        deadlines=Deadlines(run.start_deadline_s, run.call_deadline_s),
    )


if __name__ == "__main__":
    main()
