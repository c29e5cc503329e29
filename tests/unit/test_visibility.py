"""A cluster of which a machine does not see the files is refused before there is any worker."""

import re

import pytest

from embedmill.errors import RefusedError
from embedmill.executor import InlineExecutor
from embedmill.testing.index_contents import contents_of
from embedmill.testing.rehearsal import Rehearsal
from embedmill.visibility import Blindness
from embedmill.workspace_settings import WorkspaceSettings
from pipelines.ingest import ingest


class Cluster(InlineExecutor):
    """An executor with other machines, from which a file or folder is hidden."""

    def __init__(self, hidden=None, machines=1):
        super().__init__(name="ray")
        self.hidden, self.machines, self.looks = hidden, machines, 0

    def elsewhere(self, look, *arguments):
        self.looks += 1
        away = self.hidden and self.hidden.rename(self.hidden.with_name("away"))
        try:
            found = look(*arguments)
        finally:
            if away:
                away.rename(self.hidden)
        return {f"{number:08x}cafe": found for number in range(self.machines)}


@pytest.fixture
def rehearsal(tmp_path):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.write({"a": "apples", "b": "plums"})
    return rehearsal


def files_below(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    ("name", "what", "key"),
    [
        ("workspace", "the workspace", "workspace"),
        ("rows.jsonl", "the source", "source.path"),
        ("store", "the store", "store.path"),
    ],
)
def test_what_one_machine_does_not_see_is_said_before_any_work(rehearsal, name, what, key):
    settings, hidden = rehearsal.settings(), rehearsal.folder / name
    executor = Cluster(hidden)
    pattern = rf"{what} {re.escape(str(hidden))} is not visible from \S+ \(node 00000000\)$"

    with pytest.raises(RefusedError, match=pattern) as refusal:
        ingest(settings, executor)

    assert refusal.value.code == "not-visible"
    assert f"set {key};" in refusal.value.hint
    assert executor._specs == {}
    assert not list(rehearsal.folder.glob("workspace/indexes/*/chunks"))
    assert files_below(rehearsal.folder / "store") == []
    # The refused run has let go of the index.
    executor.hidden = None
    assert ingest(settings, executor).status == "succeeded"
    executor.close()
    assert len(contents_of(settings).vectors) == 2
    assert executor.looks == 2


def test_a_workspace_by_the_address_of_a_file_is_a_folder_too(rehearsal):
    hidden = rehearsal.folder / "workspace"
    workspace = WorkspaceSettings(url=f"file://{hidden}")
    settings = rehearsal.settings().model_copy(update={"workspace": workspace})

    with pytest.raises(RefusedError, match=re.escape(f"the workspace {hidden} is not visible")):
        ingest(settings, Cluster(hidden))


def test_many_blind_machines_are_counted_and_all_that_is_unseen_is_said(rehearsal):
    settings = rehearsal.settings()
    rehearsal.folder.joinpath("work").mkdir()

    class Blind(Cluster):
        def elsewhere(self, look, sights):
            return {f"node-{n}": Blindness(f"host-{n}", tuple(sights)) for n in range(12)}

    with pytest.raises(RefusedError) as refusal:
        ingest(settings, Blind())

    for what in ("workspace", "source", "store"):
        assert re.search(
            rf"the {what} \S+ is not visible from host-0 \(node node-0\), .*and 9 more machines",
            str(refusal.value),
        )
    assert "set workspace and source.path and store.path" in refusal.value.hint
