"""Which dead letters are still open: the row has not been put right since."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from embedmill.dead_letter import DeadLetter, read_letters
from embedmill.ledger import Ledger
from embedmill.run_report import read_reports
from embedmill.segment import ChunkLayer
from embedmill.sharding import doc_key
from embedmill.workspace import Workspace


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


def open_letters(workspace: Workspace, index: str, chunks: ChunkLayer) -> list[OpenLetter]:
    """Letters that are open, in the order of first failure.

    A letter about a whole document is open while the last complete scan met the failure: each scan
    tries again. A letter about a chunk is open while the document stands in the segment that it
    failed in: a changed, replayed or removed document closes it.

    Args:
        workspace: of the index.
        index: its name.
        chunks: of the version that the letters belong to.
    """
    histories: dict[str, list[DeadLetter]] = {}
    for letter in read_letters(workspace, index):
        histories.setdefault(letter.id, []).append(letter)
    last_scan = _last_scan(workspace, index)
    ledgers: dict[int, Ledger] = {}
    found = []
    for history in histories.values():
        letter = history[-1]
        if letter.chunk_index < 0:
            still = letter.run >= last_scan
        else:
            if letter.shard not in ledgers:
                ledgers[letter.shard] = Ledger.fold(chunks, letter.shard)[0]
            entry = ledgers[letter.shard].get(doc_key(letter.doc_id))
            still = entry is not None and entry.segment == letter.segment
        if still:
            found.append(OpenLetter(letter, len(history), history[0].time))
    return found


def _last_scan(workspace: Workspace, index: str) -> str:
    """The newest run that read its whole source; "" when there was none."""
    complete = (
        run
        for run, report in read_reports(workspace, index)
        if report is not None
        and report.pipeline == "ingest"
        and report.status in {"succeeded", "partial"}
    )
    return next(complete, "")


def grouped(letters: list[OpenLetter]) -> Iterator[tuple[tuple[str, str], list[OpenLetter]]]:
    """Group by stage and code, the largest group first."""
    groups: dict[tuple[str, str], list[OpenLetter]] = {}
    for item in letters:
        groups.setdefault((item.letter.stage, item.letter.code), []).append(item)
    yield from sorted(groups.items(), key=lambda group: -len(group[1]))
