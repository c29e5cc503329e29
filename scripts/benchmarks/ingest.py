"""What the pipeline itself costs: a first ingest without a model, and a rerun that changes nothing.

Makes documents of about 1 KB (the same ones every time), each one chunk, and ingests them with
hashed vectors into a store that only counts; then runs the same again. Inline, where everything
takes turns in one process, and over Ray; the faster of the two is held against the floors.

Rates are those of a whole run but for the start of Ray and of its workers: from the first committed
segment to the report for a first ingest, from a ready executor to the report for a rerun. The
processor time of all processes is shown for each document, their starts and Ray's own included: it
falls with the number of documents. Where other processes take part of the machine, rates below the
floors are no verdict (exit status 3).
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import no_verdict, spread, verdict
from benchmarks.ingesting import Ingest, add_maximum_others, ingested, parser, scratch, settings_in
from benchmarks.machine import BenchError, others_cores
from benchmarks.memory import WORDS, rate
from embedmill.settings import Settings

EXECUTORS = ("inline", "ray")


@dataclass(frozen=True, slots=True)
class Round:
    """A first ingest and a rerun.

    Attributes:
        first: took in every document.
        again: found every document unchanged.
    """

    first: Ingest
    again: Ingest

    @property
    def chunks_per_s(self) -> float:
        """Of the first ingest, once its workers ran."""
        return rate(self.first)

    @property
    def documents_per_s(self) -> float:
        """Of the rerun."""
        return self.again.report.documents.read / self.again.seconds


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=900)
    made.add_argument(
        "--documents", type=int, default=100_000, help="in the corpus (default %(default)s)"
    )
    made.add_argument("--rounds", type=int, default=3, help="of each (default %(default)s)")
    made.add_argument(
        "--executors", default=",".join(EXECUTORS), help="that are measured (default %(default)s)"
    )
    made.add_argument(
        "--minimum-chunks",
        type=float,
        default=20_000,
        help="per second of a first ingest (default %(default)g)",
    )
    made.add_argument(
        "--minimum-documents",
        type=float,
        default=50_000,
        help="per second of a rerun (default %(default)g)",
    )
    add_maximum_others(made)
    options = made.parse_args()
    with scratch() as folder:
        rounds = {
            executor: measured_rounds(
                folder / executor,
                executor,
                documents=options.documents,
                rounds=options.rounds,
                timeout_s=options.timeout,
            )
            for executor in options.executors.split(",")
        }
    return judge(rounds, options)


def measured_rounds(
    folder: Path, executor: str, *, documents: int, rounds: int, timeout_s: float
) -> list[Round]:
    """Measure on one executor, and print every round.

    Args:
        folder: is made, and holds what the runs write.
        executor: ``inline`` or ``ray``.
        documents: in the corpus.
        rounds: each with an index of its own.
        timeout_s: a run is ended then.

    Raises:
        BenchError: a run failed, or its counts are not what they must be.
    """
    folder.mkdir()
    corpus = folder / "corpus.jsonl"
    write_documents(corpus, documents)
    found = []
    for number in range(rounds):
        home = folder / str(number)
        home.mkdir()
        settings = settings_of(home, corpus)
        first = ingested(settings, home, executor=executor, timeout_s=timeout_s)
        again = ingested(settings, home, executor=executor, timeout_s=timeout_s)
        if first.report.stored_records != documents or first.report.documents.added != documents:
            raise BenchError(f"not every document arrived: {first.report}")
        if again.report.documents.unchanged != documents or again.report.changed_anything:
            raise BenchError(f"a rerun changed something: {again.report}")
        found.append(Round(first, again))
        describe(executor, found[-1])
    return found


def describe(executor: str, found: Round) -> None:
    """Print one round."""
    documents = found.first.report.documents.read
    costs = [1e6 * run.measured.own_cpu_s / documents for run in (found.first, found.again)]
    print(
        f"{executor:7} first {found.chunks_per_s:,.0f} chunks/s, {costs[0]:.0f} us a chunk; ",
        end="",
    )
    print(f"again {found.documents_per_s:,.0f} documents/s, {costs[1]:.0f} us a document")
    print(f"        others: {found.first.measured.others}", flush=True)


def settings_of(home: Path, corpus: Path) -> Settings:
    """Everything but a model and a store."""
    return settings_in(
        home,
        {"path": str(corpus)},
        chunker={"kind": "document"},
        embedder={"kind": "hashing", "dimension": 64},
        store={"kind": "discard", "path": str(home / "store")},
    )


def write_documents(path: Path, documents: int) -> None:
    """Write JSON lines with the columns id and text, 140 words each."""
    # Not for secrets: the same words every time.
    draw = random.Random(20)  # noqa: S311
    with path.open("w") as file:
        for number in range(documents):
            words = " ".join(draw.choices(WORDS, k=140))
            file.write(f'{{"id":"d{number:08d}","text":"{words} {number}"}}\n')


def judge(rounds: dict[str, list[Round]], options: argparse.Namespace) -> int:
    """Print medians and hold the best of them against the floors; return the exit status."""
    print()
    best = [0.0, 0.0]
    for executor, found in rounds.items():
        chunks = [each.chunks_per_s for each in found]
        documents = [each.documents_per_s for each in found]
        print(f"{executor:7} first {spread(chunks, 'chunks/s', 0)}; ", end="")
        print(f"again {spread(documents, 'documents/s', 0)}")
        best = [
            max(best[0], statistics.median(chunks)),
            max(best[1], statistics.median(documents)),
        ]
    good = best[0] >= options.minimum_chunks and best[1] >= options.minimum_documents
    others = others_cores([run.measured for run in _all(rounds)])
    if not good and others > options.maximum_others:
        return no_verdict(others, options.maximum_others)
    return verdict(
        good=good,
        what=f"{best[0]:,.0f} chunks/s and {best[1]:,.0f} documents/s unchanged, at least "
        f"{options.minimum_chunks:,.0f} and {options.minimum_documents:,.0f} are asked for",
    )


def _all(rounds: dict[str, list[Round]]) -> Sequence[Ingest]:
    return [run for found in rounds.values() for each in found for run in (each.first, each.again)]


if __name__ == "__main__":
    sys.exit(main())
