"""A look at everything that is fast, in two minutes: is any of it slower than it was?

Five ratios, each the product against something plain on the same machine in the same minute, so
that they say the same on another machine; small sizes of what the other benches measure:

overhead    the bare model's seconds of the run's seconds; 1 would be a run that only embeds
retrieval   nDCG@10 of 30 questions about Python's standard library, over its rendered documentation
parse       times as fast as a loop of json.loads: vectors of a batch job, base64 and float lists
write       of the embedded store's own client: records per second, checked and confirmed
unchanged   a loop that reads and hashes the file, of a run that finds every document unchanged

Fails when one is below its floor in scripts/benchmarks/floors.yaml, which stands some way below
what a quiet machine shows: it catches what got much slower, not a few percent.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import orjson
import yaml

from benchmarks.bare_write import LOOPS
from benchmarks.figures import no_verdict, spread, verdict
from benchmarks.ingesting import MINILM, Ingest, ingested, parser, scratch, settings_in
from benchmarks.job_data_path import DataPath, made_up_texts, write_rows
from benchmarks.machine import others_cores
from benchmarks.one_write import in_turn
from benchmarks.overhead import embedded_texts
from benchmarks.retrieval import mean, ranking
from benchmarks.write import make_corpus
from benchmarks.writing import STORE, corpus_settings
from embedmill.embedders.local import LocalEmbedder
from embedmill.embedders.local_recipe import local_recipe
from embedmill.index_reader import open_index
from embedmill.ranking import ndcg
from embedmill.settings import SentenceTransformersSettings, Settings

_HERE = Path(__file__).parent
_ROUNDS = 2
_JOB_ROWS = 1_000
_RECORDS, _DIMENSION = 4_096, 384
_DOCUMENTS = 30_000
_TIMEOUT_S = 300.0


def main() -> int:
    """Measure everything; return the exit status."""
    made = parser(__doc__, timeout_s=_TIMEOUT_S)
    made.add_argument("--floors", type=Path, default=_HERE / "floors.yaml", help="%(default)s")
    made.add_argument(
        "--maximum-others",
        type=float,
        default=0.5,
        help="cores that other processes may use on average (default %(default)g)",
    )
    options = made.parse_args()
    floors: dict[str, float] = yaml.safe_load(options.floors.read_text())
    before = time.monotonic()
    runs: list[Ingest] = []
    low = []
    with scratch() as folder:
        for name, values in _ratios(folder, options, floors, runs):
            # The better of the rounds: what disturbs a round makes it worse.
            ratio = max(values)
            enough = ratio >= floors[name]
            low += [] if enough else [name]
            said = "" if enough else "  TOO LOW"
            print(
                f"{name:13} {spread(values, digits=3):28} floor {floors[name]:g}{said}", flush=True
            )
    print(f"in {time.monotonic() - before:.0f} s")
    others = others_cores([run.measured for run in runs])
    if others > options.maximum_others:
        return no_verdict(others, options.maximum_others)
    return verdict(good=not low, what=f"below the floor: {', '.join(low) or 'nothing'}")


def _ratios(
    folder: Path, options: argparse.Namespace, floors: dict[str, float], runs: list[Ingest]
) -> Iterator[tuple[str, list[float]]]:
    """Every ratio by its name; more of each is better."""
    documents = _rendered(folder)
    settings = _library_settings(folder, documents)
    yield "overhead", _overhead(settings, folder, options, floors["overhead"], runs)
    yield "retrieval", [_retrieval(settings)]
    yield from _parse(folder)
    yield "write", _write(folder)
    yield "unchanged", _unchanged(folder, options, runs)


def _rendered(folder: Path) -> Path:
    docs = folder / "docs"
    script = _HERE.parent / "render_python_docs.py"
    subprocess.run([sys.executable, str(script), str(docs)], check=True)  # noqa: S603 (ours)
    return docs


def _library_settings(folder: Path, documents: Path) -> Settings:
    home = folder / "library"
    home.mkdir()
    settings = settings_in(
        home, {"path": "unused"}, chunker={"kind": "auto"}, embedder=MINILM, shard_count=4
    )
    source = {"kind": "files", "path": str(documents), "include": ["**/*.md"]}
    values = settings.model_dump(mode="json") | {"source": source}
    return Settings.model_validate(values, strict=False)


def _overhead(
    settings: Settings,
    folder: Path,
    options: argparse.Namespace,
    enough: float,
    runs: list[Ingest],
) -> list[float]:
    """The model's seconds for the texts, sorted as a run cannot, of the seconds of the run.

    It takes the longest of all: there is another round only where the first is not enough.
    """
    embedder_settings = settings.embedder
    assert isinstance(embedder_settings, SentenceTransformersSettings)
    model = LocalEmbedder(embedder_settings, local_recipe(embedder_settings, "cosine"))
    found = []
    for number in range(_ROUNDS):
        home = folder / f"overhead-{number}"
        home.mkdir()
        index = settings.index if number == 0 else f"{settings.index}-{number}"
        own = settings.model_copy(update={"index": index})
        runs.append(ingested(own, home, executor="inline", timeout_s=options.timeout))
        texts = embedded_texts(own)
        started = time.perf_counter()
        model.embed(texts, "document")
        found.append((time.perf_counter() - started) / runs[-1].seconds)
        if found[-1] >= enough:
            break
    return found


def _retrieval(settings: Settings) -> float:
    questions = map(orjson.loads, (_HERE / "questions.jsonl").read_bytes().splitlines())
    with open_index(settings) as reader:
        return mean(
            ndcg(ranking(reader, each["text"]), {f"{each['module']}.md": 1}, 10)
            for each in questions
        )


def _parse(folder: Path) -> Iterator[tuple[str, list[float]]]:
    home = folder / "jobs"
    home.mkdir()
    path = DataPath(made_up_texts(_JOB_ROWS, 120), home)
    path.require_equal()
    rounds = [(path.plain("float", 1), path) for _ in range(_ROUNDS)]
    for form, name in (("base64", "parse_base64"), ("float", "parse_lists")):
        yield name, [loop.parse / path.ours(form, 1).parse for loop, _ in rounds]


def _write(folder: Path) -> list[float]:
    home = folder / "write"
    home.mkdir()
    segment = 512
    make_corpus(home, _DIMENSION, argparse.Namespace(records=_RECORDS, segment=segment))
    settings = corpus_settings(home, _DIMENSION, segment)
    found = []
    for number in range(_ROUNDS):
        place = str(home / f"store-{number}")
        writers = in_turn(settings, "embedded", place, f"round-{number}")["writers"]
        best = min(writers[name][0] for name in LOOPS["embedded"])
        found.append(best / writers[STORE][0])
    return found


def _unchanged(folder: Path, options: argparse.Namespace, runs: list[Ingest]) -> list[float]:
    home = folder / "unchanged"
    home.mkdir()
    rows = home / "rows.jsonl"
    write_rows(rows, made_up_texts(_DOCUMENTS, 40))
    settings = settings_in(
        home,
        {"path": str(rows)},
        chunker={"kind": "document"},
        embedder={"kind": "hashing", "dimension": 64},
        store={"kind": "discard", "path": str(home / "store")},
    )
    ingested(settings, home, executor="inline", timeout_s=options.timeout)
    found = []
    for _ in range(_ROUNDS + 1):
        runs.append(ingested(settings, home, executor="inline", timeout_s=options.timeout))
        assert runs[-1].report.documents.unchanged == _DOCUMENTS
        loop = min(_read_and_hash(rows) for _ in range(3))
        found.append(loop / runs[-1].seconds)
    return found


def _read_and_hash(rows: Path) -> float:
    started = time.perf_counter()
    with rows.open("rb") as lines:
        for line in lines:
            row = orjson.loads(line)
            hashlib.blake2b(row["text"].encode(), digest_size=16).digest()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
