"""Embedding jobs: the data path against the straightforward loop, and a large job end to end.

The data path: build the file of requests, parse results of 1,536 dimensions, hand over arrays in
the order of the rows, all as the product does it, but for the network; against a loop of
``json.dumps`` and ``json.loads`` over float lists, which is what the official examples do. Times
are processor seconds of one thread.

The large job: that many one-chunk documents are ingested through jobs at the fake server, which
runs in a process of its own; everything else (scan, jobs, vectors, a store that only counts) runs
inline in one process, whose peak memory is taken.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from benchmarks.figures import verdict
from benchmarks.ingesting import ingested, parser, scratch, settings_in
from benchmarks.job_data_path import DataPath, Times, made_up_texts, write_rows
from benchmarks.machine import BenchError, mib

_KEY = "EMBEDMILL_BENCH_KEY"
_MB = 10**6
_MOST_REQUESTS = 50_000


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=1800)
    made.add_argument("--rows", type=int, default=4000, help="of the data path (%(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="of the data path (%(default)s)")
    made.add_argument(
        "--chunks", type=int, default=120_000, help="of the large job; 0: none (%(default)s)"
    )
    made.add_argument(
        "--minimum-base64", type=float, default=8.0, help="times as fast as the loop (%(default)g)"
    )
    made.add_argument(
        "--minimum-lists", type=float, default=3.5, help="times as fast as the loop (%(default)g)"
    )
    made.add_argument(
        "--maximum-memory", type=float, default=400.0, help="MB of the large job (%(default)g)"
    )
    options = made.parse_args()
    with scratch() as folder:
        good, said = data_path(options, folder)
        if options.chunks:
            small, size = large_job(options, folder)
            good, said = good and small, f"{said}; {size}"
    return verdict(good=good, what=said)


def data_path(options: argparse.Namespace, folder: Path) -> tuple[bool, str]:
    """Compare; whether both limits are kept, and what they are."""
    path = DataPath(made_up_texts(options.rows, 120), folder)
    path.require_equal()
    loop = path.plain("float", options.rounds)
    _say("json loop, float lists", loop, None, options.rows)
    _say("json loop, base64", path.plain("base64", options.rounds), loop, options.rows)
    ratios = {}
    for form, name in (("base64", "embedmill, base64"), ("float", "embedmill, float lists")):
        ours = path.ours(form, options.rounds)
        _say(name, ours, loop, options.rows)
        ratios[form] = loop.whole / ours.whole
    good = ratios["base64"] >= options.minimum_base64 and ratios["float"] >= options.minimum_lists
    return good, (
        f"texts to arrays {ratios['base64']:.1f} times as fast with base64 (at least "
        f"{options.minimum_base64:g}), {ratios['float']:.1f} times with float lists (at least "
        f"{options.minimum_lists:g})"
    )


def _say(name: str, times: Times, loop: Times | None, rows: int) -> None:
    parts = []
    for what in ("build", "parse", "hand_over", "whole"):
        spent = getattr(times, what)
        ratio = f" ({getattr(loop, what) / spent:.1f}x)" if loop else ""
        parts.append(f"{what.replace('_', ' ')} {1e6 * spent / rows:,.1f} us{ratio}")
    print(f"{name:24} a row: {', '.join(parts)}", flush=True)


def large_job(options: argparse.Namespace, folder: Path) -> tuple[bool, str]:
    """Ingest through jobs; whether memory and files were small enough, and what they were."""
    write_rows(folder / "rows.jsonl", made_up_texts(options.chunks, 40))
    os.environ[_KEY] = "any"
    with fake_server(folder) as url:
        settings = settings_in(
            folder,
            {"path": str(folder / "rows.jsonl")},
            chunker={"kind": "document"},
            embedder={
                "kind": "openai",
                "api_key": f"${{{_KEY}}}",
                "base_url": url,
                "tokenizer": "estimate",
                "mode": "batch",
                "jobs": {"poll_seconds": 0.5, "poll_most_seconds": 2},
            },
            store={"kind": "discard", "path": str(folder / "store")},
        )
        run = ingested(settings, folder, executor="inline", timeout_s=options.timeout, period_s=0.2)
        with urllib.request.urlopen(url.removesuffix("/v1") + "/fake/bill") as reply:  # noqa: S310
            bill = orjson.loads(reply.read())
    _require_all(run.report, bill, options.chunks)
    largest = max(job["requests"] for job in run.report.jobs)
    peak = run.measured.peak_bytes
    print(
        f"\n{options.chunks:,} chunks in {len(run.report.jobs)} jobs of at most {largest:,} "
        f"requests, {run.seconds:.0f} s, peak {mib(peak)} ({peak / _MB:.0f} MB); "
        f"{bill['texts']:,} texts were charged for, known texts included"
    )
    good = peak < options.maximum_memory * _MB and largest <= _MOST_REQUESTS
    return good, (
        f"{options.chunks:,} chunks with less than {options.maximum_memory:g} MB and at most "
        f"{_MOST_REQUESTS:,} requests a file"
    )


def _require_all(report: Any, bill: dict[str, Any], chunks: int) -> None:  # noqa: ANN401 - JSON
    if report.chunks.embedded != chunks or report.stored_records != chunks:
        raise BenchError(f"not every chunk arrived: {report}")
    known = 3
    if bill["texts_charged_more_than_once"] > known:
        raise BenchError(f"texts were charged for twice: {bill}")


@contextmanager
def fake_server(folder: Path) -> Iterator[str]:
    """The fake server in a process of its own; its address."""
    command = [sys.executable, "-m", "embedmill.testing.openai_server", "--polls", "1"]
    server = subprocess.Popen(  # noqa: S603 - ours
        [*command, "--folder", str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


if __name__ == "__main__":
    sys.exit(main())
