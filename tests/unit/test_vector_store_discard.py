"""Counting without keeping: truthful, small, fast, and still right in the next process."""

import tracemalloc
from pathlib import Path
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill.errors import RefusedError
from embedmill.settings import DiscardStoreSettings
from embedmill.testing.counting_store_contract import UNIT, a_batch, record_ids, unit_vectors
from embedmill.vector_stores.discard import DiscardStore, keys_of
from embedmill.vector_stores.key_log import KeyLog, KeySet


def opened(path: Path) -> DiscardStore:
    return DiscardStore(DiscardStoreSettings(kind="discard", path=str(path)))


steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "reopen"]), st.lists(st.integers(0, 60))),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(steps)
def test_any_sequence_of_calls_leaves_the_set_that_python_would_have(
    tmp_path_factory, steps
) -> None:
    path = tmp_path_factory.mktemp("log") / "keys.log"
    log, right = KeyLog(path), set()
    for what, numbers in steps:
        keys = np.array(numbers, dtype=np.uint64)
        if what == "add":
            log.add(keys)
            right |= set(numbers)
        elif what == "remove":
            log.remove(keys)
            right -= set(numbers)
        else:
            log.close()
            log = KeyLog(path)
        assert len(log) == len(right)
    log.close()


def test_what_was_counted_is_known_to_the_next_opener_even_without_closing(tmp_path) -> None:
    path = tmp_path / "keys.log"
    KeyLog(path).add(np.arange(1000, dtype=np.uint64))
    assert len(KeyLog(path)) == 1000


@pytest.mark.parametrize("cut", [1, 7, 12, 100, 803])
def test_a_frame_that_a_crash_cut_off_is_cut_away_and_the_next_ones_are_read(tmp_path, cut) -> None:
    path = tmp_path / "keys.log"
    log = KeyLog(path)
    log.add(np.arange(100, dtype=np.uint64))
    log.add(np.arange(100, 200, dtype=np.uint64))
    log.close()
    path.write_bytes(path.read_bytes()[:-cut])
    log = KeyLog(path)
    assert len(log) == 100
    log.add(np.arange(500, 510, dtype=np.uint64))
    log.close()
    assert len(KeyLog(path)) == 110


def test_a_frame_that_is_not_what_was_written_ends_what_is_read(tmp_path) -> None:
    path = tmp_path / "keys.log"
    log = KeyLog(path)
    for number in range(3):
        log.add(np.array([number], np.uint64))
    log.close()
    content = bytearray(path.read_bytes())
    # In the key of the second of three frames of 20 bytes.
    content[35] ^= 1
    path.write_bytes(content)
    log = KeyLog(path)
    assert len(log) == 1
    log.add(np.array([7], np.uint64))
    log.close()
    assert len(KeyLog(path)) == 2


def test_a_log_of_mostly_removed_keys_is_written_anew(tmp_path) -> None:
    path = tmp_path / "keys.log"
    log = KeyLog(path)
    for _ in range(20):
        log.add(np.arange(1000, dtype=np.uint64))
        log.remove(np.arange(10, 1000, dtype=np.uint64))
    log.close()
    before = path.stat().st_size
    log = KeyLog(path)
    assert len(log) == 10
    assert path.stat().st_size < before / 100
    log.close()
    assert len(KeyLog(path)) == 10


def test_memory_stays_within_twenty_bytes_per_key() -> None:
    count = 2_000_000
    keys = np.random.default_rng(0).permutation(np.arange(count, dtype=np.uint64))
    tracemalloc.start()
    held = KeySet()
    for start in range(0, count, 5_000):
        held.add(held.absent(keys[start : start + 5_000]))
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(held) == count
    assert now <= 8.1 * count
    assert peak <= 20 * count


def test_ids_that_differ_in_one_half_only_get_different_keys() -> None:
    ids = [UUID(int=1), UUID(int=1 << 64), UUID(int=3 << 64), UUID(int=(1 << 64) + 3), UUID(int=0)]
    # The first two are the price of 64 bits: only chance keeps such pairs from being made.
    assert len(set(keys_of(ids).tolist())) == 4
    assert len(set(keys_of(record_ids(20_000)).tolist())) == 20_000


def test_reading_is_refused_with_the_reason(tmp_path) -> None:
    store = opened(tmp_path)
    store.create_collection("notes", UNIT)
    store.upsert("notes", a_batch(3))
    for call in (
        lambda: store.ids("notes"),
        lambda: store.fetch("notes", record_ids(1)),
        lambda: store.search("notes", unit_vectors(1)[0], 1),
    ):
        with pytest.raises(RefusedError, match="only counts") as refusal:
            call()
        assert "qdrant_embedded" in refusal.value.hint
    store.close()
