"""Another store for an index version: which one it is, and whether it may be written to."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import orjson

from embedmill.applied_layer import AppliedLayer
from embedmill.assembly import Layers
from embedmill.auditing import Auditor
from embedmill.document import record_id
from embedmill.errors import CountsMismatchError, RefusedError
from embedmill.live_records import LiveRecords, LiveSegment
from embedmill.manifest import IndexVersion
from embedmill.plain_numbers import number_of
from embedmill.run_report import run_folder
from embedmill.sealed_json import sealed
from embedmill.segment import SegmentKey
from embedmill.settings import StoreSettings
from embedmill.vector_store import VectorStore
from embedmill.workspace import Workspace, create_once

log = logging.getLogger(__name__)
# What tells one store from another; everything else in the settings is how it is used.
_ADDRESS = ("kind", "url", "host", "path", "index", "name", "control_url")


@dataclass(frozen=True, slots=True)
class OtherStore:
    """A store that a version is copied to.

    Attributes:
        address: what tells it from others; no secrets.
        id: 12 hexadecimal digits over that.
    """

    address: Mapping[str, str]
    id: str

    @classmethod
    def of(cls, settings: StoreSettings) -> OtherStore:
        """The store that these settings describe."""
        values = settings.model_dump(mode="json")
        address = {key: str(values[key]) for key in _ADDRESS if values.get(key)}
        if "path" in address:
            address["path"] = str(Path(address["path"]).expanduser().resolve())
        if "url" in address:
            address["url"] = address["url"].rstrip("/")
        text = orjson.dumps(address, option=orjson.OPT_SORT_KEYS)
        return cls(address, blake2b(text, digest_size=6).hexdigest())

    def __str__(self) -> str:
        """For a person: ``qdrant at http://localhost:6333``."""
        place = next((v for k, v in self.address.items() if k != "kind"), "")
        return f"{self.address['kind']} at {place}" if place else self.address["kind"]


def begin_copy(
    workspace: Workspace,
    index: str,
    version: IndexVersion,
    other: OtherStore,
    store: VectorStore,
    *,
    overwrite: bool,
) -> None:
    """Note that the version is copied there, before the first record is.

    Args:
        workspace: of the index.
        index: its name.
        version: that is copied; its collection exists in the store.
        other: the store.
        store: the same, opened.
        overwrite: the collection is this version's whatever is in it.

    Raises:
        RefusedError: the collection has records that no copy of ours has put there.
    """
    if is_ours(workspace, index, version.collection, other):
        return
    records = store.count(version.collection)
    if records and not overwrite:
        raise RefusedError(
            f"collection {version.collection!r} in {other} has {number_of(records, 'record')} "
            "already, and they are not from a copy of this index",
            code="foreign-records",
            hint="drop that collection, or say --overwrite: what is not this version's is deleted",
        )
    note_ours(workspace, index, version.collection, other)


def is_ours(workspace: Workspace, index: str, collection: str, other: OtherStore) -> bool:
    """Whether it was noted that what is in the collection there is ours."""
    return workspace.read(_note(index, collection, other)) is not None


def note_ours(workspace: Workspace, index: str, collection: str, other: OtherStore) -> None:
    """Note that what is in the collection there is ours: a version's own, or a copy of it."""
    body = {"store": dict(other.address), "collection": collection}
    create_once(workspace, _note(index, collection, other), sealed(body))


def forget_ours(workspace: Workspace, index: str, collection: str, other: OtherStore) -> None:
    """Take the note back: the collection there is dropped, and its name free for anybody."""
    workspace.delete([_note(index, collection, other)])


def _note(index: str, collection: str, other: OtherStore) -> str:
    return f"indexes/{index}/copies/{other.id}/{collection}.json"


def copied_until(applied: AppliedLayer, committed: Mapping[int, list[int]]) -> dict[int, int]:
    """Number of the last segment that is in the other store, by shard.

    A shard that was folded since begins anew with its snapshot, which holds all of its documents;
    the audit at the end removes what the snapshot does not have.
    """
    last = {shard: numbers[-1] for shard, numbers in applied.committed().items() if numbers}
    return {
        shard: last[shard]
        for shard, numbers in committed.items()
        if shard in last and last[shard] >= numbers[0]
    }


def records_applied(layers: Layers) -> int:
    """Records that the store has taken of all segments."""
    return sum(
        layers.applied.read(SegmentKey(shard, numbers[-1])).records
        for shard, numbers in layers.chunks.committed().items()
    )


@dataclass(frozen=True, slots=True)
class NotCopied:
    """One record of the index that the other store did not take.

    Attributes:
        doc_id: of its document.
        chunk_index: of its chunk.
        code: why, a short stable word.
        message: for a person.
    """

    doc_id: str
    chunk_index: int
    code: str
    message: str


def not_copied(layers: Layers) -> Iterator[NotCopied]:
    """The records of the index, as it stands now, that the other store did not take."""
    live = LiveRecords(layers.chunks, layers.vectors, None)
    for shard in live.shards():
        for segment in live.segments(shard):
            rejected = layers.applied.read(segment.key).rejected
            if rejected:
                yield from _not_copied(layers, live, segment, rejected)


def _not_copied(
    layers: Layers,
    live: LiveRecords,
    segment: LiveSegment,
    rejected: Sequence[tuple[int, str, str]],
) -> Iterator[NotCopied]:
    chunks, _ = layers.chunks.chunks(segment.key)
    docs = layers.chunks.docs(segment.key, ("doc_id",)).column("doc_id").to_pylist()
    # Chunks without a vector have no record in the index either.
    should_be = set(live.records(segment).ids)
    doc_rows, indexes = chunks.column("doc_row").to_pylist(), chunks.column("chunk_index")
    for row, code, message in rejected:
        doc_id, index = docs[doc_rows[row]], indexes[row].as_py()
        if record_id(doc_id, index) in should_be:
            yield NotCopied(doc_id, index, code, message)


def list_not_copied(workspace: Workspace, index: str, run: str, rows: Sequence[NotCopied]) -> str:
    """Write down which records have no copy, one JSON object a line; return the path."""
    path = f"{run_folder(index, run)}/not-copied.jsonl"
    create_once(workspace, path, b"".join(orjson.dumps(row) + b"\n" for row in rows))
    return path


def put_right(layers: Layers, store: VectorStore, collection: str) -> None:
    """Compare every record with the layers, and put right what differs.

    Raises:
        CountsMismatchError: something differs after that too.
    """
    for repair in (True, False):
        auditor = Auditor(layers.chunks, layers.vectors, layers.applied, store, collection)
        kinds: Counter[str] = Counter()
        for finding in auditor.findings(repair=repair):
            kinds[finding.kind] += 1
        if not kinds:
            return
        said = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common())
        log.warning("the copy differed and was put right: %s", said)
    raise CountsMismatchError(
        f"the copy is not what was copied: {said}", hint="run the same command again"
    )
