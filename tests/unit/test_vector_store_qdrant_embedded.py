"""The embedded engine: what is confirmed stays, and what it would choke on never reaches it."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import qdrant_edge

from embedmill.errors import DamagedFileError, PermanentError, StopRunError
from embedmill.settings import QdrantEmbeddedSettings
from embedmill.testing.counting_store_contract import UNIT, a_batch, record_ids, unit_vectors
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.build import open_store
from embedmill.vector_stores.qdrant_embedded import RESERVED_BYTES, QdrantEmbeddedStore
from embedmill.vector_stores.qdrant_embedded_engine import EngineLog, engine_errors
from embedmill.vector_stores.qdrant_embedded_upserts import check_not_all


def opened(path: Path) -> QdrantEmbeddedStore:
    return QdrantEmbeddedStore(QdrantEmbeddedSettings(kind="qdrant_embedded", path=str(path)))


WRITER = """
    import sys
    from embedmill.settings import QdrantEmbeddedSettings
    from embedmill.testing.counting_store_contract import UNIT, record_ids, unit_vectors
    from embedmill.vector_store import VectorBatch
    from embedmill.vector_stores.build import open_store

    store = open_store(QdrantEmbeddedSettings(kind="qdrant_embedded", path=sys.argv[1]))
    store.create_collection("notes", UNIT)
    for number in range(1_000_000):
        ids = record_ids(500, f"batch-{number}")
        batch = VectorBatch(ids, unit_vectors(500, number), [{"n": number}] * 500)
        assert not store.upsert("notes", batch)
        if number % 3 == 2:
            store.delete("notes", ids[:100])
            print("deleted", number, flush=True)
        print("stored", number, flush=True)
"""


@pytest.mark.crash
def test_everything_confirmed_is_there_after_the_writer_was_killed(tmp_path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        lines = [writer.stdout.readline() for _ in range(60)]
        writer.send_signal(signal.SIGKILL)
        lines += writer.stdout.readlines()
    confirmed = [line.split() for line in lines if line.endswith("\n")]
    stored = [int(number) for word, number in confirmed if word == "stored"]
    deleted = [int(number) for word, number in confirmed if word == "deleted"]
    assert len(stored) > 40
    store = opened(tmp_path)
    for number in stored:
        ids = record_ids(500, f"batch-{number}")
        kept = ids[100:] if number in deleted else ids
        found = store.fetch("notes", ids)
        assert list(found.ids) == kept
        right = unit_vectors(500, number)[500 - len(kept) :]
        np.testing.assert_allclose(found.vectors, right, atol=1e-5)
        assert list(found.payloads) == [{"n": number}] * len(kept)
    extra = store.count("notes") - (len(stored) * 500 - len(deleted) * 100)
    # What was in flight may be there too; one batch at most.
    assert 0 <= extra <= 500
    store.close()


def test_a_million_bytes_of_text_per_record_go_through_in_packs(tmp_path) -> None:
    store = opened(tmp_path)
    store.create_collection("notes", UNIT)
    # 80 MB in one batch, over twice what one write to the engine may hold.
    payloads = [{"text": str(row % 10) * 1_000_000} for row in range(80)]
    assert list(store.upsert("notes", a_batch(80, payloads=payloads))) == []
    store.close()
    store = opened(tmp_path)
    ids = record_ids(80)
    assert list(store.fetch("notes", ids[77:]).payloads) == payloads[77:]
    assert store.count("notes") == 80
    store.close()


def test_the_collections_own_files_stay_open_between_calls(tmp_path) -> None:
    store = opened(tmp_path)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(1))
    # A second load fails while the first is open: this is how one can see that it is.
    with pytest.raises(Exception, match="WouldBlock"):
        qdrant_edge.EdgeShard.load(str(tmp_path / "collections" / "notes" / "records"))
    store.close()


def test_files_that_the_engine_cannot_read_are_named(tmp_path) -> None:
    store = opened(tmp_path)
    store.create_collection("notes", UNIT)
    store.close()
    shutil.rmtree(tmp_path / "collections" / "notes" / "records" / "segments")
    shutil.rmtree(tmp_path / "collections" / "notes" / "records" / "wal")
    (tmp_path / "collections" / "notes" / "records" / "edge_config.json").unlink()
    store = opened(tmp_path)
    with pytest.raises(DamagedFileError, match="engine says"):
        store.count("notes")
    store.close()


def test_dot_and_euclid_keep_vectors_as_they_are(tmp_path) -> None:
    store = opened(tmp_path)
    batch = a_batch(50)
    batch.vectors[:] *= 7.5
    for metric in ("dot", "euclid"):
        store.create_collection(metric, CollectionSpec(16, metric, normalised=False))
        store.upsert(metric, batch)
        np.testing.assert_array_equal(store.fetch(metric, batch.ids).vectors, batch.vectors)
    store.close()


def test_ids_are_listed_over_several_pages(tmp_path) -> None:
    store = opened(tmp_path)
    store.create_collection("notes", CollectionSpec(2, "dot", normalised=False))
    count = 20_001
    ids = record_ids(count)
    vectors = np.ones((count, 2), dtype=np.float32)
    store.upsert("notes", VectorBatch(ids, vectors, [{}] * count))
    listed = list(store.ids("notes"))
    assert (len(listed), set(listed)) == (count, set(ids))
    store.close()


def test_what_the_engine_says_about_the_disk_stops_the_run_and_the_rest_is_the_records_fault(
    tmp_path,
) -> None:
    with (
        pytest.raises(StopRunError, match=str(tmp_path)),
        engine_errors(tmp_path, PermanentError),
    ):
        raise Exception("Service runtime error: Read-only file system (os error 30)")  # noqa: TRY002
    with (
        pytest.raises(PermanentError) as refusal,
        engine_errors(tmp_path, PermanentError),
    ):
        raise ValueError("bad   record\n" * 100)
    assert refusal.value.code == "refused-by-store"
    assert len(str(refusal.value)) < 250


def test_an_engine_that_takes_no_record_at_all_stops_the_run() -> None:
    failures = {row: PermanentError("no") for row in range(3)}
    check_not_all(failures, 4)
    check_not_all({0: PermanentError("no")}, 1)
    with pytest.raises(StopRunError, match="none of 3"):
        check_not_all(failures, 3)


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 220 MiB: twice what must be free, room for some thousand records."""
    place = tmp_path / "tiny"
    place.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=220m", "tmpfs", str(place)],
        check=False,
        capture_output=True,
    )
    if mounted.returncode != 0:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_fills_up_stops_the_run_with_everything_confirmed_still_readable(
    tiny_disk,
) -> None:
    store = opened(tiny_disk)
    store.create_collection("notes", UNIT)

    def batch(n: int) -> VectorBatch:
        texts = [{"text": "x" * 5_000}] * 500
        return VectorBatch(record_ids(500, f"n{n}"), unit_vectors(500), texts)

    with pytest.raises(StopRunError, match="MiB") as stop:
        [store.upsert("notes", batch(n)) for n in range(200)]
    confirmed = store.count("notes")
    assert str(tiny_disk) in str(stop.value)
    assert "make room" in stop.value.hint
    # Not a record of the refused batch, and all of those before it.
    assert 1000 <= confirmed < 100_000
    assert confirmed % 500 == 0
    store.close()
    subprocess.run(["mount", "-o", "remount,size=600m", str(tiny_disk)], check=True)
    store = opened(tiny_disk)
    assert store.count("notes") == confirmed
    following = batch(confirmed // 500)
    assert list(store.fetch("notes", following.ids).ids) == []
    assert store.upsert("notes", following) == []
    assert store.count("notes") == confirmed + 500
    store.close()


def test_a_full_disk_is_reported_instead_of_opened(tiny_disk) -> None:
    store = opened(tiny_disk)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(5))
    store.close()
    with (tiny_disk / "ballast").open("wb") as ballast:
        ballast.write(b"\0" * (shutil.disk_usage(tiny_disk).free - RESERVED_BYTES + 1))
    store = opened(tiny_disk)
    with pytest.raises(StopRunError, match="free"):
        store.count("notes")
    (tiny_disk / "ballast").unlink()
    assert store.count("notes") == 5
    store.close()


def test_a_read_only_disk_stops_the_run_with_its_name(tiny_disk) -> None:
    store = opened(tiny_disk)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(5))
    store.close()
    subprocess.run(["mount", "-o", "remount,ro", str(tiny_disk)], check=True)
    with pytest.raises(StopRunError, match=str(tiny_disk)):
        opened(tiny_disk)
    subprocess.run(["mount", "-o", "remount,rw", str(tiny_disk)], check=True)


def test_the_store_is_what_the_settings_open(tmp_path) -> None:
    settings = QdrantEmbeddedSettings(kind="qdrant_embedded", path=str(tmp_path))
    store = open_store(settings)
    assert isinstance(store, QdrantEmbeddedStore)
    store.close()


class Disk:
    """Notes what is synced."""

    def __init__(self, vanishes: str = "") -> None:
        self.synced: list[str] = []
        self.vanishes = vanishes

    def __call__(self, path: Path) -> None:
        if path.name == self.vanishes:
            self.vanishes = ""
            path.rename(path.with_name("closed-7"))
            raise FileNotFoundError(path)
        self.synced.append(path.name)

    def take(self) -> list[str]:
        taken, self.synced = sorted(self.synced), []
        return taken


def a_log(folder: Path, disk: Disk) -> EngineLog:
    for name in ("open-1", "open-2", "closed-0", "first-index"):
        (folder / name).write_bytes(b"1")
    return EngineLog(folder, sync=disk)


def test_open_files_of_the_log_are_always_synced_and_others_when_they_have_changed(tmp_path):
    folder = tmp_path / "wal"
    folder.mkdir()
    disk = Disk()
    log = a_log(folder, disk)
    log.sync()
    assert disk.take() == ["closed-0", "first-index", "open-1", "open-2", "wal"]
    log.sync()
    assert disk.take() == ["open-1", "open-2"]
    (folder / "open-1").rename(folder / "closed-4")
    (folder / "first-index").write_bytes(b"22")
    log.sync()
    assert disk.take() == ["closed-4", "first-index", "open-2", "wal"]


def test_a_file_of_the_log_that_is_renamed_meanwhile_is_synced_under_its_new_name(tmp_path):
    disk = Disk(vanishes="open-1")
    a_log(tmp_path, disk).sync()
    assert {"closed-7", "open-2", tmp_path.name} <= set(disk.take())


def test_records_whose_log_cannot_be_synced_are_not_confirmed(tmp_path):
    def defective(path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

    store = opened(tmp_path)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(5))
    folder = tmp_path / "collections" / "notes" / "records" / "wal"
    store._logs["notes"] = EngineLog(folder, sync=defective)
    with pytest.raises(StopRunError, match="cannot be written"):
        store.upsert("notes", a_batch(100))
    with pytest.raises(StopRunError, match="cannot be written"):
        store.delete("notes", a_batch(5).ids)
    store.close()


def with_disk(folder: Path) -> tuple[QdrantEmbeddedStore, Disk]:
    """A store with one record, and what it syncs from now on."""
    store = opened(folder)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(1))
    disk = Disk()
    store._logs["notes"] = EngineLog(folder / "collections/notes/records/wal", sync=disk)
    return store, disk


def test_what_is_written_in_a_block_is_synced_once_at_its_end(tmp_path):
    store, disk = with_disk(tmp_path)
    with store.confirmed_together("notes"):
        store.upsert("notes", a_batch(5))
        store.delete("notes", a_batch(2).ids)
        assert store.count("notes") == 3
        assert disk.take() == []
    assert disk.take()
    with store.confirmed_together("notes"):
        pass
    assert disk.take() == []
    store.upsert("notes", a_batch(5))
    assert disk.take()
    store.close()


def test_what_a_block_wrote_that_failed_is_synced_with_the_next(tmp_path):
    store, disk = with_disk(tmp_path)
    with suppress(KeyboardInterrupt), store.confirmed_together("notes"):
        store.upsert("notes", a_batch(5))
        raise KeyboardInterrupt
    assert disk.take() == []
    with store.confirmed_together("notes"):
        pass
    assert disk.take()
    store.close()
