"""Which dead letters are still open: the row has not been put right since."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from embedmill.applied_layer import AppliedLayer
from embedmill.dead_letter import DeadLetter, read_letters
from embedmill.ledger import Ledger
from embedmill.manifest import IndexVersion
from embedmill.rereading import undisturbed
from embedmill.run_report import read_reports
from embedmill.sealed_json import sealed, unsealed
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.sharding import doc_key
from embedmill.workspace import Workspace, require


@dataclass(frozen=True, slots=True)
class OpenLetter:
    """A letter whose row still fails.

    Attributes:
        letter: as it was written last.
        runs: how many runs have met the failure.
        first: time of the first of them.
    """

    letter: DeadLetter
    runs: int
    first: str


def open_letters(workspace: Workspace, index: str, version: IndexVersion) -> list[OpenLetter]:
    """Letters that are open, in the order of first failure.

    A letter about a whole document is open while the last complete scan met the failure, since each
    scan tries again, and no replay of it has succeeded since. A letter about a chunk is open while
    that chunk, where its document stands now, has no record in the store: a changed, replayed or
    removed document closes it.

    Args:
        workspace: of the index.
        index: its name.
        version: that the letters belong to.
    """
    histories: dict[str, list[DeadLetter]] = {}
    for letter in read_letters(workspace, index):
        histories.setdefault(letter.id, []).append(letter)
    last_scan, replayed = _last_tries(workspace, index)
    return undisturbed(
        lambda: _still_open(histories, last_scan, replayed, _Standing(workspace, index, version))
    )


def _still_open(
    histories: Mapping[str, list[DeadLetter]],
    last_scan: str,
    replayed: Mapping[str, str],
    standing: _Standing,
) -> list[OpenLetter]:
    found = []
    for history in histories.values():
        letter = history[-1]
        whole = letter.chunk_index < 0
        failed_last = letter.run >= max(last_scan, replayed.get(letter.id, ""))
        if failed_last if whole else standing.lacks_record(letter):
            found.append(OpenLetter(letter, len(history), history[0].time))
    return found


class _Standing:
    """Where documents stand now, and which of their chunks have no record."""

    def __init__(self, workspace: Workspace, index: str, version: IndexVersion) -> None:
        self._chunks = ChunkLayer(workspace, index, version.chunking.id)
        self._applied = AppliedLayer(workspace, index, version.collection)
        self._ledgers: dict[int, Ledger] = {}
        self._lost: dict[SegmentKey, set[tuple[str, int]] | None] = {}

    def lacks_record(self, letter: DeadLetter) -> bool:
        """Whether the chunk of a letter still has no record."""
        shard = letter.shard
        if shard not in self._ledgers:
            self._ledgers[shard] = Ledger.fold(self._chunks, shard)[0]
        entry = self._ledgers[shard].get(doc_key(letter.doc_id))
        if entry is None:
            return False
        key = SegmentKey(shard, entry.segment)
        if key not in self._lost:
            self._lost[key] = self._lost_in(key)
        lost = self._lost[key]
        if lost is None:
            return letter.chunk_index < entry.chunk_count
        return (letter.doc_id, letter.chunk_index) in lost

    def _lost_in(self, key: SegmentKey) -> set[tuple[str, int]] | None:
        """Document and chunk index of the rows that have no record; None: none has one yet."""
        applied = self._applied.read_if_there(key)
        if applied is not None and not applied.rejected:
            return set()
        # Read after it: what a compaction has replaced is missing here, not unapplied.
        docs = self._chunks.docs(key, ("doc_id",)).column("doc_id").to_pylist()
        if applied is None:
            return None
        chunks, _ = self._chunks.chunks(key)
        doc_rows = chunks.column("doc_row").to_pylist()
        indexes = chunks.column("chunk_index").to_pylist()
        return {(docs[doc_rows[row]], indexes[row]) for row, _, _ in applied.rejected}


def note_replay(workspace: Workspace, index: str, run: str, letters: Sequence[OpenLetter]) -> None:
    """Record which letters a replay takes up; it counts once the run has a report of success."""
    ids = [item.letter.id for item in letters]
    workspace.create(_replay_path(index, run), sealed({"letters": ids}))


def _last_tries(workspace: Workspace, index: str) -> tuple[str, dict[str, str]]:
    """The newest run that read its whole source ("" for none), and the last replay by letter."""
    last_scan = ""
    replayed: dict[str, str] = {}
    for run, report in read_reports(workspace, index):
        if report is None or report.status not in {"succeeded", "partial"}:
            continue
        if report.pipeline == "ingest":
            last_scan = max(last_scan, run)
        elif report.pipeline == "replay":
            path = _replay_path(index, run)
            for letter in unsealed(require(workspace, path), path)["letters"]:
                replayed[letter] = max(run, replayed.get(letter, ""))
    return last_scan, replayed


def _replay_path(index: str, run: str) -> str:
    return f"indexes/{index}/runs/{run}/replayed.json"


def grouped(letters: list[OpenLetter]) -> Iterator[tuple[tuple[str, str], list[OpenLetter]]]:
    """Group by stage and code, the largest group first."""
    groups: dict[tuple[str, str], list[OpenLetter]] = {}
    for item in letters:
        groups.setdefault((item.letter.stage, item.letter.code), []).append(item)
    yield from sorted(groups.items(), key=lambda group: -len(group[1]))
