"""Dead letters: one record per failed row, with where, why, how often, and how to replay it.

A letter refers to its row and never contains it; messages are ours or redacted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any, Literal

import orjson

from embedmill.errors import DamagedFileError
from embedmill.run_context import RunContext, utc_now
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.workspace import Workspace, create_once

Stage = Literal["read", "parse", "chunk", "embed", "apply"]


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One failed row.

    Attributes:
        stage: where it failed.
        doc_id: of its document; empty when none could be read.
        uri: where a person finds the row.
        code: short stable word, the cause; letters are grouped by it.
        error: type of the error.
        message: for a person.
        chunk_index: of the failed chunk, or -1 for a whole document.
        shard: that owns the document.
        segment: that holds the failed chunk, or -1.
        attempts: how often it was tried in this run.
        run: that wrote the letter.
        time: UTC, ISO 8601.
        version: index version it belongs to.
    """

    stage: Stage
    doc_id: str
    uri: str
    code: str
    error: str
    message: str
    chunk_index: int
    shard: int
    segment: int
    attempts: int
    run: str
    time: str
    version: str

    @property
    def id(self) -> str:
        """12 hexadecimal digits; the same row failing for the same cause keeps its id.

        Rows that have an id in common are told apart by their places.
        """
        who = self.doc_id or self.uri
        name = f"{len(who)}:{who}:{self.chunk_index}:{self.stage}:{self.code}"
        if self.code == "duplicate-id":
            name += f":{self.uri}"
        digest = blake2b(name.encode("utf-8", "surrogateescape"), digest_size=6)
        return digest.hexdigest()


def write_letters(workspace: Workspace, index: str, run: str, letters: Iterable[DeadLetter]) -> int:
    """Write letters of one shard and stage as one file; an equal set is written once.

    Returns:
        How many letters there were.
    """
    batch = list(letters)
    if not batch:
        return 0
    lines = b"".join(orjson.dumps(asdict(letter)) + b"\n" for letter in batch)
    name = blake2b("".join(letter.id for letter in batch).encode(), digest_size=6).hexdigest()
    first = batch[0]
    path = f"{_folder(index)}/{run}/{first.stage}-s{first.shard:04d}-{name}.jsonl"
    # The same rows failing again in one run (a shard is scanned twice after a crash) are the
    # same letters; only their time differs.
    create_once(workspace, path, lines)
    return len(batch)


def bury_chunks(
    workspace: Workspace,
    context: RunContext,
    layer: ChunkLayer,
    key: SegmentKey,
    stage: Stage,
    lost: Iterable[tuple[int, int, str, str]],
) -> None:
    """Write letters for chunks of a committed segment.

    Args:
        workspace: takes the letters.
        context: of the run.
        layer: holds the segment's documents.
        key: the segment.
        stage: where the chunks failed.
        lost: (document row, chunk index, code, message) of each.
    """
    docs = layer.docs(key, ("doc_id", "uri"))
    ids, uris = docs.column("doc_id").to_pylist(), docs.column("uri").to_pylist()
    letters = [
        DeadLetter(
            stage=stage,
            doc_id=ids[doc_row],
            uri=uris[doc_row],
            code=code,
            error="PermanentError",
            message=message,
            chunk_index=index,
            shard=key.shard,
            segment=key.number,
            attempts=1,
            run=context.run,
            time=utc_now(),
            version=context.version,
        )
        for doc_row, index, code, message in lost
    ]
    write_letters(workspace, context.settings.index, context.run, letters)


def read_letters(workspace: Workspace, index: str, run: str | None = None) -> Iterator[DeadLetter]:
    """All letters of one run, or of all runs, oldest run first; a letter id once per run.

    Raises:
        DamagedFileError: a line is not a letter.
    """
    folder = f"{_folder(index)}/{run}" if run else _folder(index)
    seen: set[tuple[str, str]] = set()
    for path in sorted(entry.path for entry in workspace.list(folder)):
        for number, line in enumerate((workspace.read(path) or b"").split(b"\n"), start=1):
            if not line:
                continue
            letter = _letter(line, path, number)
            if (letter.run, letter.id) not in seen:
                seen.add((letter.run, letter.id))
                yield letter


def _letter(line: bytes, path: str, number: int) -> DeadLetter:
    try:
        record: dict[str, Any] = orjson.loads(line)
        return DeadLetter(**{f.name: record[f.name] for f in fields(DeadLetter)})
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{path}, line {number}, is not a dead letter",
            hint="move the file out of the workspace; the rows fail again if they still do",
        ) from error


def _folder(index: str) -> str:
    return f"indexes/{index}/dead_letters"
