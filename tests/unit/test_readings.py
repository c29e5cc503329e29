"""Readings of a shard: what was read is known again, whoever noted it, and never what was not."""

from hashlib import blake2b

import pytest

from embedmill import readings
from embedmill.readings import Readings
from embedmill.testing.memory_workspace import MemoryWorkspace


@pytest.fixture
def workspace():
    return MemoryWorkspace()


def of(workspace, shard=0):
    """The readings of a shard, as another run opens them."""
    return Readings(workspace, "an-index", "text-1", shard)


def digest(name):
    return blake2b(name.encode(), digest_size=16).digest()


def note(noted, names, tag="t", content="c", size=1):
    for name in names:
        noted.note(digest(name), digest(tag), digest(content), size)


def known(found, names, tag="t", content="c"):
    keys = list(map(digest, names))
    return found.are_known(keys, [digest(tag)] * len(keys), [digest(content)] * len(keys))


def files(workspace):
    return sorted(path.rpartition("/")[2] for path in workspace.files)


def test_a_document_is_known_under_its_tag_and_with_its_content_alone(workspace):
    noted = of(workspace)
    note(noted, "ab")
    noted.finish(2)

    assert known(of(workspace), "abc") == [True, True, False]
    assert known(of(workspace), "ab", tag="other") == [False, False]
    assert known(of(workspace), "ab", content="other") == [False, False]
    assert known(of(workspace, shard=1), "ab") == [False, False]
    assert known(of(MemoryWorkspace()), "ab") == [False, False]


def test_a_digest_that_ends_with_zeros_is_whole(workspace, monkeypatch):
    monkeypatch.setattr(readings, "_digest", lambda key, *_: key[:14] + b"\0\0")
    noted = of(workspace)
    note(noted, "ab")
    noted.finish(2)
    assert known(of(workspace), "abc") == [True, True, False]


def test_what_is_known_already_is_put_once(workspace):
    for _ in range(3):
        noted = of(workspace)
        note(noted, "ab")
        noted.finish(2)
    assert files(workspace) == ["00000000.parquet"]
    of(workspace).finish(2)
    assert len(workspace.files) == 1


@pytest.mark.parametrize("limit", ["_FILE_READINGS", "_FILE_BYTES"])
def test_readings_are_put_before_a_run_ends(workspace, monkeypatch, limit):
    monkeypatch.setattr(readings, limit, 3)
    note(of(workspace), "abcd")
    assert known(of(workspace), "abcd") == [True, True, True, False]


def test_many_files_become_one_with_what_was_met(workspace, monkeypatch):
    monkeypatch.setattr(readings, "_MOST_FILES", 3)
    for name in "abc":
        noted = of(workspace)
        note(noted, [name])
        noted.finish(3)
    assert len(workspace.files) == 3
    noted = of(workspace)
    assert known(noted, "ab") == [True, True]
    note(noted, "c", tag="other")
    noted.finish(3)

    assert files(workspace) == ["00000003.parquet"]
    assert known(of(workspace), "abc") == [True, True, False]
    assert known(of(workspace), "c", tag="other") == [True]


def test_a_run_that_has_not_met_all_documents_lets_no_reading_go(workspace, monkeypatch):
    monkeypatch.setattr(readings, "_MOST_FILES", 1)
    noted = of(workspace)
    note(noted, "abc")
    noted.finish(3)
    replayed = of(workspace)
    note(replayed, "d")
    replayed.finish(4)

    assert files(workspace) == ["00000001.parquet"]
    assert known(of(workspace), "abcd") == [True] * 4


def test_a_number_that_somebody_else_has_taken_is_passed_over(workspace):
    one, other = of(workspace), of(workspace)
    for noted, names in ((one, "a"), (other, "b")):
        assert known(noted, names) == [False]
        note(noted, names)
    one.finish(1)
    other.finish(1)
    assert known(of(workspace), "ab") == [True, True]


def test_a_damaged_file_costs_another_look(workspace, caplog):
    noted = of(workspace)
    note(noted, "ab")
    noted.finish(2)
    [path] = workspace.files
    workspace.replace(path, b"torn")

    again = of(workspace)

    assert known(again, "ab") == [False, False]
    assert "is left out" in caplog.text
    note(again, "ab")
    again.finish(2)
    caplog.clear()
    assert known(of(workspace), "ab") == [True, True]
    assert (files(workspace), caplog.text) == (["00000001.parquet"], "")
