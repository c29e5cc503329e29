"""The same runs under both executors, compared point by point."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from embedmill.assembly import workspace_of
from embedmill.executor import InlineExecutor
from embedmill.manifest import Manifest
from embedmill.open_letters import open_letters
from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts
from pipelines.ingest import ingest
from pipelines.replay import replay
from pipelines.run_options import RunOptions

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]
BLIND_NODE = Path(__file__).with_name("blind_node.py")
LOSING_A_NODE = Path(__file__).with_name("losing_a_node.py")


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
    settings = rehearsal.settings(shard_workers=3, embed_workers=3)
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

    # One executor is enough for this: more workers only add their start.
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

    (folder / "c.html").unlink()
    report = ingest(settings, executor, RunOptions(allow_deletes=True))
    assert counts_of(report) == {"read": 3, "unchanged": 3, "removed": 1}
    executor.close()
    assert contents_of(settings).documents() == {"a.md", "deep/b.txt", "bad.txt"}


def letters_of(settings):
    workspace = workspace_of(settings)
    version = Manifest(workspace, settings.index).read().newest
    return open_letters(workspace, settings.index, version)


def test_one_core_is_enough(rehearsal, expected):
    texts = made_up_texts(60)
    rehearsal.write(texts)
    settings = rehearsal.settings(shard_workers=1, embed_workers=1)
    # A Ray of its own: this process is connected to another one.
    code = (
        "import sys; from pathlib import Path; from actors.actor_pool import RayExecutor;"
        "from embedmill.settings_file import load_settings; from pipelines.ingest import ingest\n"
        "executor = RayExecutor(cpus=1, object_store_bytes=100 * 2**20)\n"
        "ingest(load_settings(Path(sys.argv[1]), []), executor)\n"
        "executor.close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(rehearsal.config)],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert_same_contents(contents_of(settings), expected(texts))


def test_a_run_completes_on_the_nodes_that_are_left(rehearsal, expected):
    texts = made_up_texts(300)
    rehearsal.write(texts)
    settings = rehearsal.settings()
    done = subprocess.run(
        [sys.executable, LOSING_A_NODE, rehearsal.config],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"status": "succeeded", "lost": 1}
    assert_same_contents(contents_of(settings), expected(texts))


def test_a_node_that_does_not_see_the_workspace_is_found_before_work_starts(rehearsal, monkeypatch):
    rehearsal.write(made_up_texts(10))
    rehearsal.settings()
    monkeypatch.setenv("HOME", str(rehearsal.folder))
    config = rehearsal.config.read_text()
    rehearsal.config.write_text(config.replace(f"{rehearsal.folder}/workspace", "~/workspace"))
    home = rehearsal.folder / "home of the node"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, BLIND_NODE, rehearsal.config, home],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert "the workspace ~/workspace is not visible from" in said["refusal"]
    assert f"(node {said['node'][:8]})" in said["refusal"]
    assert list(home.iterdir()) == []
    assert not list(rehearsal.folder.glob("workspace/indexes/*/chunks"))
