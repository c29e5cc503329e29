"""Evaluating beside runs: it only reads, and what is half written is looked at again."""

from dataclasses import replace

import pytest

from embedmill.errors import DamagedFileError, RefusedError, TransientError
from embedmill.gate import failed_gates
from embedmill.lease import take_lease
from embedmill.manifest import Manifest
from embedmill.testing.rehearsal import made_up_texts
from pipelines.evaluate import evaluate

TEXTS = made_up_texts(20, longest=30)


@pytest.fixture
def index(small_index):
    made = small_index(
        embedder={"kind": "hashing", "dimension": 64}, chunker={"kind": "text", "max_tokens": 40}
    )
    made.ingest(TEXTS)
    return made


def evaluated(index, on_gate=lambda _: None):
    with index.seams():
        return evaluate(index.settings, on_gate=on_gate)


def test_a_run_that_has_the_index_is_no_hindrance(index):
    assert evaluated(index).beside == ""
    with take_lease(index.workspace, "small", "ingest"):
        found = evaluated(index)
        assert found.passed
        assert found.beside.startswith("ingest by process ")
        # And the other way round: it holds nothing that a run would wait for.
        with take_lease(index.workspace, "small", "reembed", name="build-lease"):
            assert evaluated(index).passed


class Syncing:
    """A sync commits documents between two gates, some number of times."""

    def __init__(self, index, times):
        self._index, self._times, self._texts = index, times, dict(TEXTS)

    def __call__(self, gate):
        if gate == "records" and self._times:
            self._times -= 1
            self._texts[f"new-{self._times}"] = f"a text that came as number {self._times}"
            self._index.ingest(self._texts)


def test_what_a_sync_wrote_to_meanwhile_is_looked_at_again(index):
    found = evaluated(index, Syncing(index, 1))
    assert found.passed
    assert found.results[2].figures["expected"] == len(index.ids())


def test_who_is_disturbed_every_time_says_so(index):
    with pytest.raises(TransientError, match="writes to v1 all the time"):
        evaluated(index, Syncing(index, 9))


def test_files_that_a_compaction_replaced_are_no_damage(index):
    def compacted(gate):
        if gate == "read-back" and index.count_of("/chunks/") == before:
            index.ingest({**TEXTS, "new": "later"})
            raise DamagedFileError("a file is gone")

    before = index.count_of("/chunks/")
    assert evaluated(index, compacted).passed

    def damaged(gate):
        raise DamagedFileError("a file is torn")

    with pytest.raises(DamagedFileError, match="torn"):
        evaluated(index, damaged)


def test_a_version_that_fails_while_nobody_writes_fails(index):
    path = next(path for path in index.workspace.files if "/applied/" in path)
    index.workspace.delete([path])
    assert "applied" in {gate.name for gate in failed_gates(evaluated(index).results)}


def test_a_version_that_is_being_built_is_not_judged(index):
    manifest = Manifest(index.workspace, "small")
    state = manifest.read()
    version = replace(state.versions[0], number=2, state="building", collection="small--v2")
    manifest.commit(version, state)
    with pytest.raises(RefusedError, match="v2 is building") as caught:
        evaluated(index)
    assert "embedmill reembed" in caught.value.hint
