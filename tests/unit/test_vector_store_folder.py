"""The folder that embedded stores share: one owner, whole files, nothing half-made."""

import json
import os
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from embedmill.errors import (
    DamagedFileError,
    IndexLockedError,
    MissingExtraError,
    RefusedError,
    StopRunError,
)
from embedmill.settings import DiscardStoreSettings, MemoryStoreSettings, QdrantEmbeddedSettings
from embedmill.testing.counting_store_contract import UNIT, a_batch
from embedmill.vector_stores.build import open_store, store_limits
from embedmill.vector_stores.store_folder import StoreFolder, disk_errors


def settings_of(kind: str, path: Path) -> QdrantEmbeddedSettings | DiscardStoreSettings:
    types = {"qdrant_embedded": QdrantEmbeddedSettings, "discard": DiscardStoreSettings}
    return types[kind](kind=kind, path=str(path))


both = pytest.mark.parametrize("kind", ["qdrant_embedded", "discard"])


@both
def test_a_second_opener_in_the_same_process_is_told_who_holds_the_folder(kind, tmp_path) -> None:
    settings = settings_of(kind, tmp_path)
    store = open_store(settings)
    with pytest.raises(IndexLockedError) as refusal:
        open_store(settings)
    message = str(refusal.value)
    since = json.loads((tmp_path / "lock").read_text())["since"]
    for fact in (str(tmp_path), str(os.getpid()), socket.gethostname(), since):
        assert fact in message
    assert "wait" in refusal.value.hint
    store.close()
    open_store(settings).close()


@pytest.mark.crash
@both
def test_the_lock_of_another_process_is_honoured_and_dies_with_it(kind, tmp_path) -> None:
    code = f"""
        from pathlib import Path
        from embedmill.vector_stores.store_folder import StoreFolder
        folder = StoreFolder(Path({str(tmp_path)!r}), {kind!r})
        print("open", flush=True)
        input()
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"open\n"
        for _ in range(2):
            # Twice: the first refusal must not have emptied the lock file.
            with pytest.raises(IndexLockedError, match=str(holder.pid)):
                open_store(settings_of(kind, tmp_path))
        holder.kill()
        holder.wait()
        open_store(settings_of(kind, tmp_path)).close()


def test_a_lock_that_nobody_has_written_into_yet_is_refused_all_the_same(tmp_path) -> None:
    folder = StoreFolder(tmp_path, "discard")
    (tmp_path / "lock").write_text("")
    with pytest.raises(IndexLockedError, match="in use"):
        StoreFolder(tmp_path, "discard")
    folder.close()


@both
def test_a_collection_that_a_crash_left_half_made_is_made_anew(kind, tmp_path) -> None:
    store = open_store(settings_of(kind, tmp_path))
    store.create_collection("notes", UNIT)
    store.close()
    # As after a crash between the backend's files and the spec, which is written last.
    (tmp_path / "collections" / "notes" / "spec.json").unlink()
    (tmp_path / "collections" / "notes" / ".spec.json.tmp").write_text('{"dimen')
    store = open_store(settings_of(kind, tmp_path))
    assert list(store.collections()) == []
    with pytest.raises(RefusedError):
        store.count("notes")
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(3))
    assert store.count("notes") == 3
    store.close()


@both
def test_a_removal_that_a_crash_cut_short_is_finished_at_the_next_opening(kind, tmp_path) -> None:
    store = open_store(settings_of(kind, tmp_path))
    store.create_collection("notes", UNIT)
    store.close()
    (tmp_path / "collections" / "notes").rename(tmp_path / "collections" / ".dropped-notes")
    store = open_store(settings_of(kind, tmp_path))
    assert list(store.collections()) == []
    assert list((tmp_path / "collections").iterdir()) == []
    store.close()


def test_a_folder_of_another_kind_of_store_is_refused(tmp_path) -> None:
    store = open_store(settings_of("discard", tmp_path))
    store.create_collection("notes", UNIT)
    store.close()
    store = open_store(settings_of("qdrant_embedded", tmp_path))
    with pytest.raises(RefusedError, match="discard"):
        store.count("notes")
    store.close()


@pytest.mark.parametrize("content", ["", "{", "[]", '{"store": "discard", "dimension": 3}'])
def test_a_damaged_spec_is_named(content, tmp_path) -> None:
    store = open_store(settings_of("discard", tmp_path))
    store.create_collection("notes", UNIT)
    store.close()
    spec = tmp_path / "collections" / "notes" / "spec.json"
    spec.write_text(content)
    store = open_store(settings_of("discard", tmp_path))
    with pytest.raises(DamagedFileError, match=r"spec\.json"):
        store.count("notes")
    store.close()


def test_damaged_aliases_are_named_and_do_not_keep_the_lock(tmp_path) -> None:
    (tmp_path / "aliases.json").write_text("{")
    for _ in range(2):
        with pytest.raises(DamagedFileError, match=r"aliases\.json"):
            StoreFolder(tmp_path, "discard")


def test_what_the_disk_says_is_told_with_what_helps(tmp_path) -> None:
    # The device that is always full: a real ENOSPC from the kernel.
    with (
        pytest.raises(StopRunError, match="No space left") as stop,
        disk_errors(tmp_path),
        Path("/dev/full").open("wb", buffering=0) as full,
    ):
        full.write(b"x")
    assert str(tmp_path) in str(stop.value)
    assert "run again" in stop.value.hint


def test_a_path_that_is_a_file_is_an_error_of_the_path(tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RefusedError, match="file"):
        open_store(settings_of("discard", tmp_path / "file"))


def test_limits_are_known_without_opening_a_store(tmp_path) -> None:
    for kind in ("qdrant_embedded", "discard"):
        settings = settings_of(kind, tmp_path / "absent")
        assert store_limits(settings).writers == 1
        assert not (tmp_path / "absent").exists()
        store = open_store(settings)
        assert store.limits == store_limits(settings)
        store.close()
        (tmp_path / "absent").rename(tmp_path / kind)
    memory = MemoryStoreSettings(kind="memory")
    assert store_limits(memory) == open_store(memory).limits


def test_a_missing_engine_is_reported_with_the_line_that_installs_it(tmp_path) -> None:
    code = f"""
        import sys
        sys.modules["qdrant_edge"] = None
        from embedmill.errors import MissingExtraError
        from embedmill.settings import QdrantEmbeddedSettings
        from embedmill.vector_stores.build import open_store
        try:
            open_store(QdrantEmbeddedSettings(kind="qdrant_embedded", path={str(tmp_path)!r}))
        except MissingExtraError as error:
            print(error.hint)
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.startswith("pip install")
    assert "qdrant-edge-py" in done.stdout
    assert issubclass(MissingExtraError, RefusedError)
