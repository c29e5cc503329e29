"""The documents that all contenders get, as one file of JSON lines with ``id`` and ``text``."""

from __future__ import annotations

import argparse
import gzip
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from benchmarks.ingesting import existing_file
from benchmarks.machine import BenchError

_PART = 400
_RENDER = Path(__file__).parents[2] / "render_python_docs.py"


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is ingested.

    Attributes:
        first: the file of the cold and the unchanged run.
        edited: the same with one word more in the middle of every hundredth document.
        documents: how many there are.
        edits: how many of them differ.
        characters: of all texts.
        name: for a person.
    """

    first: Path
    edited: Path
    documents: int
    edits: int
    characters: int
    name: str


def add_corpus(made: argparse.ArgumentParser) -> None:
    """Options that say which documents to take."""
    made.add_argument(
        "--corpus",
        type=existing_file,
        help="JSON lines, .gz too; without it sections of the docs of Python's standard library",
    )
    made.add_argument("--id-column", default="id", help="default: %(default)s")
    made.add_argument(
        "--text-columns", default="text", help="joined in this order (default: %(default)s)"
    )
    made.add_argument("--documents", type=int, help="take so many from the beginning")


def make_corpus(options: argparse.Namespace, folder: Path) -> Corpus:
    """Write both files into ``folder``."""
    rows = list(_rows(options, folder))[: options.documents]
    if not rows:
        raise BenchError("the corpus is empty")
    step = min(100, len(rows))
    changed = [
        {"id": row["id"], "text": _edited(row["text"])} if at % step == step // 2 else row
        for at, row in enumerate(rows)
    ]
    first, edited = folder / "corpus.jsonl", folder / "edited.jsonl"
    for path, some in ((first, rows), (edited, changed)):
        path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in some))
    return Corpus(
        first,
        edited,
        len(rows),
        sum(before != after for before, after in zip(rows, changed, strict=True)),
        sum(len(row["text"]) for row in rows),
        options.corpus.name if options.corpus else "Python's standard library",
    )


def _rows(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, str]]:
    if options.corpus is None:
        docs = folder / "docs"
        subprocess.run([sys.executable, str(_RENDER), str(docs)], check=True)  # noqa: S603 (ours)
        for path in sorted(docs.iterdir()):
            for at, text in enumerate(_parts(path.read_text("utf-8"))):
                yield {"id": f"{path.stem}-{at}", "text": text}
        return
    opened = gzip.open if options.corpus.suffix == ".gz" else Path.open
    with opened(options.corpus, "rb") as lines:
        for row in map(orjson.loads, lines):
            columns = [row[column] for column in options.text_columns.split(",")]
            yield {"id": str(row[options.id_column]), "text": "\n\n".join(columns)}


def _parts(page: str) -> Iterator[str]:
    """A page in documents of whole sections, up to 400 characters where none is longer."""
    part = ""
    for section in page.split("\n## "):
        if part and len(part) + len(section) > _PART:
            yield part
            part = ""
        part = f"{part}\n## {section}" if part else section
    yield part


def _edited(text: str) -> str:
    middle = text.find(" ", len(text) // 2)
    at = middle if middle >= 0 else len(text)
    return f"{text[:at]} reworded{text[at:]}"
