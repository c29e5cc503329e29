"""The same runs under both executors, compared point by point."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from embedmill.assembly import workspace_of
from embedmill.executor import InlineExecutor, WorkerSpec
from embedmill.manifest import Manifest
from embedmill.open_letters import open_letters
from embedmill.settings_file import load_settings
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from pipelines.ingest import ingest
from pipelines.replay import replay
from pipelines.run_options import RunOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
SEVERAL_NODES = Path(__file__).with_name("several_nodes.py")


@pytest.fixture(params=["inline", "ray"])
def executor(request):
    if request.param == "ray":
        yield request.getfixturevalue("open_executor")()
        return
    executor = InlineExecutor()
    yield executor
    executor.close()


def counts_of(report):
    assert report.problems() == []
    return {name: count for name, count in asdict(report.documents).items() if count}


def test_a_table_is_indexed_and_followed_whatever_the_number_of_workers(
    executor, rehearsal, expected
):
    texts = made_up_texts(150)
    rehearsal.write(texts)
    # On Ray: by so many workers first, and by one of each kind then.
    settings = rehearsal.settings(shard_workers=2, embed_workers=2)
    report = ingest(settings, executor)
    executor.close()
    assert report.status == "succeeded"
    assert counts_of(report) == {"read": 150, "added": 150}
    assert report.chunks.embedded + report.chunks.deduplicated == report.stored_records
    assert_same_contents(contents_of(settings), expected(texts))

    rehearsal.write(changed(texts))
    settings = rehearsal.settings(shard_workers=1, embed_workers=1)
    report = ingest(settings, executor)
    executor.close()
    assert counts_of(report) == {
        "read": 152,
        "added": 7,
        "changed": 3,
        "unchanged": 142,
        "removed": 5,
    }
    assert report.chunks.reused > 0
    assert report.records.deleted > 0
    assert_same_contents(contents_of(settings), expected(changed(texts)), places_moved=True)

    # One executor is enough for this: the other one only adds the start of its workers.
    if executor.name == "inline":
        report = ingest(settings, executor)
        assert counts_of(report) == {"read": 152, "unchanged": 152}
        assert not report.changed_anything


def changed(texts):
    """The same with documents added, changed, shrunk, grown and removed."""
    names = list(texts)
    texts = {name: texts[name] for name in names[5:]}
    texts[names[10]] = "Something else entirely."
    texts[names[11]] = texts[names[11]].split(".")[0]
    texts[names[12]] += " with an end that is new"
    return texts | {f"new-{number}": f"Newcomer {number}" for number in range(7)}


def test_a_folder_is_indexed_and_its_dead_letter_replayed(executor, rehearsal):
    folder = rehearsal.folder / "documents"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.md").write_text("# One\n\nFirst words.\n\n## Two\n\nMore words.\n")
    (folder / "deep" / "b.txt").write_text("Plain words.")
    (folder / "c.html").write_text("<title>See</title><p>Marked words.</p>")
    (folder / "bad.txt").write_bytes(b"price \x97 \xa9")
    settings = rehearsal.settings(
        source={"kind": "files", "path": str(folder)}, shard_workers=1, embed_workers=1
    )
    report = ingest(settings, executor)
    assert report.status == "partial"
    assert counts_of(report) == {"read": 4, "added": 3, "dead": 1}

    (folder / "bad.txt").write_text("price - (c)")
    letters = letters_of(settings)
    assert [item.letter.doc_id for item in letters] == ["bad.txt"]
    report = replay(settings, executor, letters)
    assert report.status == "succeeded"
    assert counts_of(report) == {"read": 1, "added": 1}
    assert letters_of(settings) == []

    documents = {"a.md", "deep/b.txt", "bad.txt", "c.html"}
    if executor.name == "inline":
        (folder / "c.html").unlink()
        report = ingest(settings, executor, RunOptions(allow_deletes=True))
        assert counts_of(report) == {"read": 3, "unchanged": 3, "removed": 1}
        documents.remove("c.html")
    executor.close()
    assert contents_of(settings).documents() == documents


def letters_of(settings):
    workspace = workspace_of(settings)
    version = Manifest(workspace, settings.index).read().newest
    return open_letters(workspace, settings.index, version)


def test_one_core_is_enough(open_executor, rehearsal, expected):
    texts = made_up_texts(60)
    rehearsal.write(texts)
    # Of four cores three are taken.
    holder, executor = open_executor(), open_executor(start=20.0)
    holder.add_pool("holds", [WorkerSpec(dict, (), cpus=3.0)])
    holder.submit("holds", 0, "keys")
    assert holder.wait(60.0)[0].error is None
    settings = rehearsal.settings(shard_workers=1, embed_workers=1)
    assert ingest(settings, executor).status == "succeeded"
    executor.close()
    assert_same_contents(contents_of(settings), expected(texts))


@pytest.fixture(scope="module")
def several_nodes(tmp_path_factory):
    """What a cluster of several nodes said, and the indexes of its two runs.

    A cluster takes ten seconds of processor time to start, so one has both runs.
    """
    blind, losing = (Rehearsal(tmp_path_factory.mktemp(name)) for name in ("blind", "losing"))
    blind.write(made_up_texts(10))
    blind.settings()
    config = blind.config.read_text()
    blind.config.write_text(config.replace(f"{blind.folder}/workspace", "~/workspace"))
    losing.write(made_up_texts(300))
    losing.settings(shard_workers=1, embed_workers=1)
    home = blind.folder / "home of the node"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, SEVERAL_NODES, blind.config, home, losing.config],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "HOME": str(blind.folder)},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), blind, losing


def test_a_run_completes_on_the_nodes_that_are_left(several_nodes, expected):
    said, _, losing = several_nodes
    assert (said["status"], said["lost"]) == ("succeeded", 1)
    settings = load_settings(losing.config, [])
    assert_same_contents(contents_of(settings), expected(made_up_texts(300)))


def test_a_node_that_does_not_see_the_workspace_is_found_before_work_starts(several_nodes):
    said, blind, _ = several_nodes
    assert "the workspace ~/workspace is not visible from" in said["refusal"]
    assert f"(node {said['node'][:8]})" in said["refusal"]
    assert said["left"] == []
    assert not list(blind.folder.glob("workspace/indexes/*/chunks"))
