"""Two runs at once, at every effect: whatever happens, nothing is wrong without a word."""

import pytest
from scenario import CrashIndex
from test_crash_points import FIRST, SECOND, THIRD

from embedmill.errors import RefusedError
from embedmill.testing.crash_points import Effect, Process


class Interrupted(Process):
    """A process in whose middle something else happens: before its n-th effect."""

    def __init__(self, number, happens) -> None:
        super().__init__()
        self._number = number
        self._happens = happens

    def effect(self, effect: Effect, act):
        if len(self.effects) + 1 == self._number:
            # Reached once: what happens is not of this process.
            self._number = 0
            self._happens()
        return super().effect(effect, act)


def second_run(index, rows, work):
    """A run in the middle of the first one, after somebody deleted the lease files."""

    def happen():
        index.workspace.delete([path for path in index.paths() if "/lease/" in path])
        index.write(rows)
        work()

    return happen


@pytest.mark.parametrize(("work", "every"), [("the same", 3), ("newer rows", 2), ("compaction", 3)])
def test_a_second_run_in_the_middle_of_the_first_one_does_no_harm(tmp_path, work, every):
    index = CrashIndex(tmp_path)
    index.ingest(documents=FIRST)
    index.write(SECOND)
    start = index.save()
    whole = Process()
    index.ingest(whole)
    rows = THIRD if work == "newer rows" else SECOND
    second = finished(index) if work == "compaction" else index.ingest
    index.ingest(documents=rows)
    expected = index.state()
    outcomes = set()
    for number in range(1, len(whole.effects) + 1, every):
        index.restore(start)
        first = Interrupted(number, second_run(index, rows, second))
        repair = False
        try:
            index.ingest(first)
        except RefusedError as error:
            outcomes.add(error.code)
            repair = "--repair" in error.hint
        index.ingest()
        if repair:
            index.audit(repair=True)
        state = index.state()
        assert state.records() == expected.records(), whole.effects[number - 1]
        assert state.ledger == expected.ledger
        assert index.audit().clean
    # What it read was folded away, where the second run compacted. Of the manifest nothing is said:
    # a change of it that comes second is made again on top of the first.
    refusals = {"shard-owned-elsewhere", "locked", "damaged-file"}
    assert "locked" in outcomes or "shard-owned-elsewhere" in outcomes
    assert outcomes <= refusals


def finished(index):
    def work():
        index.ingest()
        index.compact()

    return work
