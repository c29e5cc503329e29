"""The manifest: one line of versions, of which each commit is the next one or none."""

import json
from dataclasses import replace

import pytest

from embedmill.errors import (
    DamagedFileError,
    ManifestConflictError,
    NewerFormatError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.manifest import IndexVersion, Manifest
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.sealed_json import sealed
from embedmill.testing.memory_workspace import MemoryWorkspace

CHUNKING = ChunkingRecipe("text", 1, "lib 1", "words", 256, 24, "refuse", "p1")
EMBEDDING = EmbeddingRecipe(
    "hashing", "hashing", "r1", 8, "float32", True, "d: ", "q: ", 512, "cosine"
)
COPY = "indexes/an-index/manifest-copy.json"


def version(number, state="building", **more):
    values = {
        "chunking": CHUNKING,
        "embedding": EMBEDDING,
        "collection": f"an-index--v{number}",
        "shard_count": 4,
        "created": "2031-01-01T00:00:00+00:00",
        **more,
    }
    return IndexVersion(number, state, **values)


@pytest.fixture
def workspace():
    return MemoryWorkspace()


@pytest.fixture
def manifest(workspace):
    return Manifest(workspace, "an-index")


def test_what_was_committed_is_read_back_whole(manifest):
    first = version(1, counts={"documents": 3}, last_run="r1")
    manifest.commit(first, manifest.read())
    assert manifest.read().versions == (first,)
    assert manifest.read().newest == first
    assert manifest.read().published is None


def test_an_index_without_a_manifest_has_no_versions(manifest):
    state = manifest.read()
    assert (state.number, state.versions, state.newest) == (0, (), None)


def test_a_commit_returns_what_a_reader_then_sees(manifest):
    state = manifest.commit(version(1), manifest.read())
    assert state == manifest.read()
    state = manifest.commit(version(2), state)
    assert state == manifest.read()
    assert [v.number for v in state.versions] == [1, 2]


def test_of_two_who_read_the_same_state_one_commits(manifest):
    state = manifest.read()
    manifest.commit(version(1), state)
    with pytest.raises(ManifestConflictError, match="another process has committed") as caught:
        manifest.commit(version(1, "failed"), state)
    assert caught.value.hint == "run the same command again"
    assert manifest.read().versions[0].state == "building"


def test_a_commit_whose_reply_was_lost_may_be_repeated(manifest):
    state = manifest.read()
    manifest.commit(version(1), state)
    manifest.commit(version(1), state)
    assert manifest.read().number == 1


def test_publishing_a_version_retires_the_one_before_in_the_same_step(workspace, manifest):
    state = manifest.commit(version(1, "published"), manifest.read())
    state = manifest.commit(version(2, "ready"), state)
    files = len(workspace.files)
    state = manifest.commit(version(2, "published"), state)
    assert len(workspace.files) == files + 1
    assert [(v.number, v.state) for v in state.versions] == [(1, "retired"), (2, "published")]
    assert state.published.number == 2
    # And back.
    state = manifest.commit(replace(state.version(1), state="published"), state)
    assert [(v.number, v.state) for v in state.versions] == [(1, "published"), (2, "retired")]


def test_other_commits_retire_nobody(manifest):
    state = manifest.commit(version(1, "published"), manifest.read())
    state = manifest.commit(version(2, "failed"), state)
    assert state.published.number == 1


def test_a_version_that_is_not_there_is_refused_with_those_that_are(manifest):
    state = manifest.commit(version(1), manifest.read())
    state = manifest.commit(version(2), state)
    assert state.version(2).name == "v2"
    with pytest.raises(RefusedError, match="there is no version v7; there are: v1, v2"):
        state.version(7)


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b""])
def test_a_damaged_newest_file_is_an_error_and_never_an_older_truth(workspace, manifest, damage):
    state = manifest.commit(version(1, "published"), manifest.read())
    manifest.commit(version(2, "published"), state)
    newest = max(workspace.files)
    for path in (newest, COPY):
        workspace.files[path] = damage(workspace.files[path])
    with pytest.raises(DamagedFileError, match=newest) as caught:
        manifest.read()
    assert "restore it" in caught.value.hint


def test_an_edited_manifest_is_not_believed(workspace, manifest):
    manifest.commit(version(1), manifest.read())
    path = max(workspace.files)
    record = json.loads(workspace.files[path])
    record["body"]["versions"][0]["state"] = "published"
    workspace.files[path] = json.dumps(record).encode()
    assert manifest.read().versions[0].state == "building"
    del workspace.files[COPY]
    with pytest.raises(DamagedFileError):
        manifest.read()


@pytest.mark.parametrize("lose", [dict.pop, lambda files, path: files.update({path: b"{torn"})])
def test_a_newest_file_that_is_lost_is_said_once_and_its_copy_goes_on(
    workspace, manifest, caplog, lose
):
    state = manifest.commit(version(1, "published"), manifest.read())
    state = manifest.commit(version(2, "published"), state)
    lose(workspace.files, "indexes/an-index/manifest/00000002.json")
    assert manifest.read() == state
    assert manifest.read() == state
    assert caplog.text.count("00000002.json") == 1
    assert f"taken from {COPY}" in caplog.text
    # What comes next stands on it.
    after = manifest.amend(1, lambda v: replace(v, pruned="today"))
    assert (after.number, after.published.number) == (3, 2)


def test_a_newest_file_that_is_not_listed_yet_is_read_all_the_same(workspace, manifest, caplog):
    state = manifest.commit(version(1), manifest.read())
    state = manifest.commit(version(1, "published"), state)
    listing = list(workspace.list("indexes/an-index/manifest"))
    workspace.list = lambda _: iter(listing[:1])
    assert manifest.read() == state
    assert not caplog.text


def test_a_copy_that_is_a_step_behind_hides_no_newer_file(workspace, manifest):
    state = manifest.commit(version(1), manifest.read())
    behind = workspace.files[COPY]
    state = manifest.commit(version(1, "published"), state)
    workspace.files[COPY] = behind
    assert manifest.read() == state


@pytest.mark.parametrize("error", [StopRunError("disk full"), TransientError("no answer")])
def test_what_is_committed_stands_though_its_copy_could_not_be_written(
    workspace, manifest, caplog, error
):
    def refused(path, data):
        raise error

    workspace.replace = refused
    state = manifest.commit(version(1), manifest.read())
    assert manifest.read() == state
    assert str(error) in caplog.text


def test_a_torn_copy_keeps_nobody_from_the_files(workspace, manifest, caplog):
    state = manifest.commit(version(1), manifest.read())
    workspace.files[COPY] = b"{torn"
    assert manifest.read() == state
    assert COPY in caplog.text


def test_other_files_beside_the_manifest_are_no_commits(workspace, manifest):
    manifest.commit(version(1), manifest.read())
    workspace.create("indexes/an-index/manifest/00000009.json.tmp", b"half")
    workspace.create("indexes/an-index/manifest/notes.json", b"mine")
    assert manifest.read().number == 1


def newer(body):
    return [
        {**body, "format": "2"},
        {**body, "versions": [{**body["versions"][0], "colour": "blue"}]},
        {
            **body,
            "versions": [
                {
                    **body["versions"][0],
                    "embedding": {**body["versions"][0]["embedding"], "colour": "blue"},
                }
            ],
        },
    ]


@pytest.mark.parametrize(("at", "what"), [(0, "format 2"), (1, "colour"), (2, "colour")])
def test_a_manifest_of_a_newer_embedmill_is_refused_by_name(manifest, workspace, at, what):
    state = manifest.commit(version(1), manifest.read())
    path = "indexes/an-index/manifest/00000002.json"
    body = json.loads(workspace.read("indexes/an-index/manifest/00000001.json"))["body"]
    workspace.create(path, sealed(newer(body)[at]))
    with pytest.raises(NewerFormatError, match=f"00000002.json has .*{what}") as refused:
        manifest.read()
    assert "newer" in refused.value.hint
    assert state.number == 1
