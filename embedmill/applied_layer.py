"""The applied layer: which segments a collection has taken, and what it did not take of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from embedmill.errors import AlreadyExistsError
from embedmill.numbered_files import NumberedFiles
from embedmill.sealed_json import sealed, unsealed
from embedmill.segment import FORMAT, SegmentKey
from embedmill.workspace import Workspace, require

_AGAIN = "run embedmill ingest SETTINGS: the store is given the segment again"


@dataclass(frozen=True, slots=True)
class Applied:
    """What the store has confirmed of one segment.

    Attributes:
        upserted: records written.
        deleted: stale record ids deleted.
        rejected: chunk rows that have no record: (row, code, message).
        records: of this shard in the collection once this segment and all before it are applied.
        time: UTC, ISO 8601.
        run: that applied it.
    """

    upserted: int
    deleted: int
    rejected: tuple[tuple[int, str, str], ...]
    records: int
    time: str
    run: str = ""


class AppliedLayer(NumberedFiles):
    """Which segments a collection has taken."""

    def __init__(self, workspace: Workspace, index: str, collection: str) -> None:
        super().__init__(workspace, f"indexes/{index}/applied/{collection}", ".json")

    def commit(self, key: SegmentKey, applied: Applied) -> bool:
        """Record that the store has confirmed a segment; doing it again changes nothing.

        Returns:
            False when another run was first.
        """
        body = {"format": FORMAT, **asdict(applied)}
        try:
            self._workspace.create(self._path(key), sealed(body))
        except AlreadyExistsError:
            return self.read(key).run == applied.run
        return True

    def read(self, key: SegmentKey) -> Applied:
        """What was recorded of an applied segment."""
        path = self._path(key)
        return self._parsed(require(self._workspace, path, again=_AGAIN), path)

    def read_if_there(self, key: SegmentKey) -> Applied | None:
        """What was recorded, or None when the segment is not applied yet."""
        path = self._path(key)
        data = self._workspace.read(path)
        return None if data is None else self._parsed(data, path)

    def records_at(self, shard: int, number: int) -> int:
        """Records of a shard once this segment and all before it are applied."""
        found = self.read_if_there(SegmentKey(shard, number))
        if found is None:
            # Folded beside us since: the snapshot has the same records.
            found = self.read(SegmentKey(shard, (self.committed_of(shard) or [number])[-1]))
        return found.records

    def _parsed(self, data: bytes, path: str) -> Applied:
        place = f"{self._workspace.url}/{path}"
        body = unsealed(data, place, remedy=f"delete it and {_AGAIN}")
        return Applied(
            upserted=body["upserted"],
            deleted=body["deleted"],
            rejected=tuple((row, code, message) for row, code, message in body["rejected"]),
            records=body["records"],
            time=body["time"],
            run=body["run"],
        )
