"""Chunking: the product's splitter against the semantic-text-splitter library, in one run.

Chunks documents with both of the product's splitters (`chunker.splitter`) and with the bare library
and the model's tokenizer, each round anew with empty caches; the slower two take the first of the
documents only. Prints rates by the processor time of this process, the ratio, and what the chunks
of those first ones are like: how full, and where they end. Fails when the product's own splitter is
not so many times as fast as the bare library, or fills its chunks less.
"""

from __future__ import annotations

import argparse
import gzip
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import orjson
from semantic_text_splitter import MarkdownSplitter, TextSplitter

from benchmarks.figures import spread, verdict
from benchmarks.ingesting import MINILM, existing_file
from embedmill.chunker import Chunk
from embedmill.chunkers.build import build_chunker
from embedmill.embedders.build import token_window
from embedmill.embedders.model_location import locate_model
from embedmill.embedders.model_tokenizer import load_tokenizer
from embedmill.parser import ParsedDocument, TextFormat
from embedmill.settings import SentenceTransformersSettings, SplittingChunkerSettings
from embedmill.tokenizer import TokenWindow

Cutter = Callable[[Sequence[str]], list[list[Chunk]]]


def main() -> int:
    """Measure as the command line says."""
    made = argparse.ArgumentParser(
        prog="scripts/bench chunk",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--corpus", type=existing_file, required=True, help="JSON lines, .gz or not")
    made.add_argument("--text", default="text", help="its column (default %(default)s)")
    made.add_argument("--kind", choices=["markdown", "text"], default="markdown")
    made.add_argument("--model", default=MINILM["model"], help="whose tokens (default %(default)s)")
    made.add_argument("--megabytes", type=float, default=15.0, help="read (default %(default)g)")
    made.add_argument(
        "--compared", type=float, default=1.5, help="megabytes for the others (default %(default)g)"
    )
    made.add_argument("--rounds", type=int, default=3, help="of each (default %(default)s)")
    made.add_argument(
        "--minimum", type=float, default=5.0, help="times as fast (default %(default)g)"
    )
    return measure(made.parse_args())


def measure(options: argparse.Namespace) -> int:
    """Cut with each; return the exit status."""
    texts = list(_texts(options.corpus, options.text, options.megabytes))
    few = list(_texts(options.corpus, options.text, options.compared))
    given = {"borders": texts, "semantic": few, "library": few}
    sizes = {name: sum(len(text.encode()) for text in each) / 1e6 for name, each in given.items()}
    print(f"{len(texts):,} documents, {sizes['borders']:.1f} MB, as {options.kind}; ", end="")
    print(f"semantic and library: the first {len(few):,}, {sizes['library']:.1f} MB")
    embedder = SentenceTransformersSettings(kind="sentence_transformers", model=options.model)
    window = token_window(embedder)
    cutters: dict[str, Callable[[], Cutter]] = {
        "borders": lambda: _product("borders", options.kind, embedder),
        "semantic": lambda: _product("semantic", options.kind, embedder),
        "library": lambda: _library(options.kind, embedder, window),
    }
    rates: dict[str, list[float]] = {name: [] for name in cutters}
    walls: dict[str, list[float]] = {name: [] for name in cutters}
    found: dict[str, list[list[Chunk]]] = {}
    for _ in range(options.rounds):
        for name, make in cutters.items():
            cut = make()
            before, busy = time.perf_counter(), time.process_time()
            chunks = cut(given[name])
            rates[name].append(sizes[name] / (time.process_time() - busy))
            walls[name].append(sizes[name] / (time.perf_counter() - before))
            found[name] = chunks[: len(few)]
    for name in cutters:
        _show(name, rates[name], walls[name], few, found[name], window)
    ratios = {
        name: [one / other for one, other in zip(rates["borders"], rates[name], strict=True)]
        for name in ("semantic", "library")
    }
    print(f"borders / semantic: {spread(ratios['semantic'])}; ", end="")
    print(f"borders / library: {spread(ratios['library'])}")
    ratio = statistics.median(ratios["library"])
    fuller = _mean_length(found["borders"]) >= _mean_length(found["library"])
    return verdict(
        good=ratio >= options.minimum and fuller,
        what=f"{ratio:.1f} times the rate of the library, the minimum is {options.minimum:g}; "
        f"chunks are {'' if fuller else 'not '}as full",
    )


def _texts(path: Path, column: str, megabytes: float) -> Iterator[str]:
    left = megabytes * 1e6
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as lines:
        for line in lines:
            text = orjson.loads(line)[column]
            left -= len(text.encode())
            if left < 0:
                return
            yield text


def _product(splitter: str, kind: str, embedder: SentenceTransformersSettings) -> Cutter:
    settings = SplittingChunkerSettings.model_validate({"kind": kind, "splitter": splitter})
    chunker = build_chunker(settings, embedder, "bench")
    form: TextFormat = "markdown" if kind == "markdown" else "text"
    return lambda texts: chunker.chunk([ParsedDocument(text, format=form) for text in texts])


def _library(kind: str, embedder: SentenceTransformersSettings, window: TokenWindow) -> Cutter:
    cls = MarkdownSplitter if kind == "markdown" else TextSplitter
    capacity = window.size - window.overhead
    tokenizer = load_tokenizer(locate_model(embedder).directory)
    splitter = cls.from_huggingface_tokenizer(tokenizer, capacity)

    def cut(texts: Sequence[str]) -> list[list[Chunk]]:
        return [
            [Chunk(text, at, at + len(text), 0) for at, text in chunks]
            for chunks in splitter.chunk_all_indices(list(texts))
        ]

    return cut


def _show(
    name: str,
    rates: Sequence[float],
    walls: Sequence[float],
    texts: Sequence[str],
    found: list[list[Chunk]],
    window: TokenWindow,
) -> None:
    chunks = [chunk for each in found for chunk in each]
    counts = window.count([chunk.text for chunk in chunks])
    over = sum(count > window.size for count in counts)
    ends = Counter(
        _end(text, chunk) for text, each in zip(texts, found, strict=True) for chunk in each
    )
    print(f"{name}: {spread(rates)} MB/s of a core, {spread(walls)} MB/s of this machine")
    print(f"    {len(chunks):,} chunks of {statistics.fmean(counts):.0f} tokens, {over} too long;")
    shares = (f"{100 * ends[kind] / len(chunks):.0f} % {kind}" for kind in _ENDS)
    print(f"    they end before or after: {', '.join(shares)}")


_ENDS = ("heading", "blank line", "sentence", "line", "word")


def _end(text: str, chunk: Chunk) -> str:
    """What stands where a chunk ends, by a rule that is neither splitter's."""
    rest = text[chunk.end :]
    after = rest.lstrip()
    between = rest[: len(rest) - len(after)]
    if not after or after.startswith("#"):
        return "heading"
    if between.count("\n") > 1:
        return "blank line"
    if text[chunk.end - 1] in ".!?":
        return "sentence"
    return "line" if "\n" in between else "word"


def _mean_length(found: list[list[Chunk]]) -> float:
    return statistics.fmean(len(chunk.text) for each in found for chunk in each)


if __name__ == "__main__":
    sys.exit(main())
