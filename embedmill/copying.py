"""Another store for an index version: which one it is, and whether it may be written to."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import orjson

from embedmill.assembly import Layers
from embedmill.auditing import Auditor
from embedmill.errors import CountsMismatchError, RefusedError
from embedmill.manifest import IndexVersion
from embedmill.sealed_json import sealed
from embedmill.segment import AppliedLayer, SegmentKey
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
    if was_begun(workspace, index, version, other):
        return
    records = store.count(version.collection)
    if records and not overwrite:
        raise RefusedError(
            f"collection {version.collection!r} in {other} has {records:,} records already, and "
            "they are not from a copy of this index",
            code="foreign-records",
            hint="drop that collection, or say --overwrite: what is not this version's is deleted",
        )
    note_copy(workspace, index, version, other)


def was_begun(workspace: Workspace, index: str, version: IndexVersion, other: OtherStore) -> bool:
    """Whether a copy of the version into that store was noted."""
    return workspace.read(_note(index, version, other)) is not None


def note_copy(workspace: Workspace, index: str, version: IndexVersion, other: OtherStore) -> None:
    """Note that what is in the collection there is a copy's."""
    body = {"store": dict(other.address), "collection": version.collection}
    create_once(workspace, _note(index, version, other), sealed(body))


def _note(index: str, version: IndexVersion, other: OtherStore) -> str:
    return f"indexes/{index}/copies/{other.id}/{version.collection}.json"


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


def refusals(layers: Layers) -> Counter[tuple[str, str]]:
    """How many records the store has refused, by code and message."""
    found: Counter[tuple[str, str]] = Counter()
    for shard, numbers in layers.applied.committed().items():
        for number in numbers:
            rejected = layers.applied.read(SegmentKey(shard, number)).rejected
            found.update((code, message) for _, code, message in rejected)
    return found


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
