"""Do the gates let a healthy swap of the model through, and stop broken ones?

Ingests a corpus, one chunk per document (what exceeds the window is cut), then builds other
versions beside the published one, as embedmill reembed does, and holds each against all gates, the
labelled queries included:

    healthy   the same model with three quarters of its window
    shorter   the first 256 components of the same vectors, normalised again; better or worse by the
              labels, whatever they say
    prompt    a document prompt that the model was not trained with, as the settings say
    hidden    vectors made with that prompt, though the recipe has none
    shuffled  every vector in the row of another text
    collapsed all vectors nearly the same

Fails when a gate refuses the first version or the healthy one, or when all let a broken one
through.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import numpy as np

from benchmarks.figures import verdict
from benchmarks.ingesting import (
    MINILM,
    add_corpus,
    corpus_source,
    existing_file,
    parser,
    scratch,
    settings_in,
)
from embedmill.assembly import Seams, seams
from embedmill.embedder import EmbeddedTexts, Embedder, Role
from embedmill.evaluation_plot import measures
from embedmill.executor import InlineExecutor
from embedmill.gate import failed_gates
from embedmill.settings import Settings
from pipelines.evaluate import Evaluation, evaluate
from pipelines.ingest import ingest
from pipelines.reembed import reembed

PROMPT = "Represent this sentence for searching relevant passages: "
Change: TypeAlias = Callable[[Embedder, Sequence[str]], EmbeddedTexts]


@dataclass(frozen=True, slots=True)
class Swap:
    """One version that is built beside the published one.

    Attributes:
        name: for the table.
        broken: whether the gates should stop it; None: that is for the labels to say.
        embedder: what its settings change; a recipe is never used twice.
        change: what happens to the vectors of documents while it is built.
    """

    name: str
    broken: bool | None
    embedder: dict[str, object]
    change: Change | None = None


class Changed:
    """An embedder whose vectors of documents go through a function."""

    def __init__(self, real: Embedder, change: Change) -> None:
        self.recipe = real.recipe
        self._real = real
        self._change = change

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; queries as they are."""
        change = self._change if role == "document" else None
        return self._real.embed(texts, role) if change is None else change(self._real, texts)


def hidden_prompt(real: Embedder, texts: Sequence[str]) -> EmbeddedTexts:
    """With a prompt that the recipe does not have."""
    return real.embed([PROMPT + text for text in texts], "document")


def shuffled(real: Embedder, texts: Sequence[str]) -> EmbeddedTexts:
    """Each vector in the row of its neighbour."""
    found = real.embed(texts, "document")
    return replace(found, vectors=np.roll(found.vectors, 1, axis=0), failures={})


def collapsed(real: Embedder, texts: Sequence[str]) -> EmbeddedTexts:
    """All near one direction."""
    found = real.embed(texts, "document")
    vectors = 0.05 * found.vectors
    vectors[:, 0] += 1
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return replace(found, vectors=vectors.astype(np.float32))


def swaps(window: int) -> list[Swap]:
    """What is tried. A query prompt of nothing but white space changes the recipe, not a vector."""
    return [
        Swap("healthy", broken=False, embedder={"max_tokens": 3 * window // 4}),
        Swap("shorter", broken=None, embedder={"dimension": 256}),
        Swap("prompt", broken=True, embedder={"document_prompt": PROMPT}),
        Swap("hidden", broken=True, embedder={"query_prompt": " "}, change=hidden_prompt),
        Swap("shuffled", broken=True, embedder={"query_prompt": "  "}, change=shuffled),
        Swap("collapsed", broken=True, embedder={"query_prompt": "   "}, change=collapsed),
    ]


def main() -> int:
    """Measure as the command line says."""
    made = parser(__doc__, timeout_s=3600)
    add_corpus(made)
    made.add_argument("--queries", type=existing_file, required=True, help="JSON lines")
    made.add_argument(
        "--qrels", type=existing_file, required=True, help="query, document, grade; tabs"
    )
    made.add_argument(
        "--window", type=int, default=256, help="tokens that the model sees (default %(default)s)"
    )
    names = [swap.name for swap in swaps(0)]
    made.add_argument("--only", nargs="+", choices=names, default=names, help="of the versions")
    options = made.parse_args()
    with scratch() as folder:
        return measure(options, folder)


def measure(options: argparse.Namespace, folder: Path) -> int:
    """Build, evaluate, print; return the exit status."""

    def settings(**embedder: object) -> Settings:
        return settings_in(
            folder,
            corpus_source(options, separator=" "),
            chunker={"kind": "document", "overflow": "truncate"},
            embedder={**MINILM, "max_tokens": options.window, **embedder},
            gates={"queries": str(options.queries), "qrels": str(options.qrels)},
        )

    with _inline() as executor:
        ingest(settings(), executor)
    wrong = _shown("first", evaluate(settings()), broken=False)
    for swap in swaps(options.window):
        if swap.name not in options.only:
            continue
        changed = settings(**swap.embedder)
        with seams(_seams(swap)), _inline() as executor:
            reembed(changed, executor)
        wrong |= _shown(swap.name, evaluate(changed), broken=swap.broken)
    return verdict(good=not wrong, what="healthy versions pass every gate, broken ones do not")


@contextmanager
def _inline() -> Iterator[InlineExecutor]:
    executor = InlineExecutor()
    try:
        yield executor
    finally:
        executor.close()


def _seams(swap: Swap) -> Seams:
    change = swap.change
    if change is None:
        return Seams()
    return Seams(embedder=lambda real: Changed(real, change))


def _shown(name: str, found: Evaluation, *, broken: bool | None) -> bool:
    """Print what the gates found; whether that is not as it should be."""
    failed = ", ".join(result.name for result in failed_gates(found.results))
    print(f"\n{name} ({found.version}): {f'refused by {failed}' if failed else 'passes'}")
    for each in measures(found.results):
        before = "" if each.before is None else f"  before {each.before:.4f}"
        change = "" if each.delta is None else "  {:+.4f} ({:+.4f} to {:+.4f})".format(*each.delta)
        print(f"  {each.label:21} {each.now:.4f}{before}{change}", flush=True)
    return broken is not None and bool(failed) != broken


if __name__ == "__main__":
    sys.exit(main())
