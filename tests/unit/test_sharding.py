"""Shards are part of every index on disk: they never move."""

import os
import subprocess
import sys
from collections import Counter

import pytest

from embedmill.sharding import MAX_SHARDS, ShardPlan, doc_key

# Written down once. If one of these changes, existing indexes are unreadable.
PINNED = {
    "a": (15, 343, 16943),
    "docs/readme.md": (6, 854, 31222),
    "": (4, 876, 45748),
    "café.md": (0, 792, 21504),
    "007": (13, 117, 33213),
    "x\udc97.txt": (8, 592, 45048),
}


@pytest.mark.parametrize("doc_id", PINNED)
def test_a_document_stays_in_its_shard_for_ever(doc_id):
    assert tuple(ShardPlan(n).shard_of(doc_id) for n in (16, 1000, 65536)) == PINNED[doc_id]


def test_the_key_of_a_document_stays_the_same_for_ever():
    assert doc_key("docs/readme.md").hex() == "8a58139fc910f4e85c54bf73234fe0b4"
    assert doc_key("x\udc97.txt").hex() == "fdeb688e9665400b42b9e2b8c07c8c3b"


def test_a_single_shard_owns_everything():
    assert {ShardPlan(1).shard_of(str(n)) for n in range(100)} == {0}


def test_shards_fill_evenly():
    counts = Counter(ShardPlan(16).shard_of(f"docs/{n}.md") for n in range(16_000))
    assert len(counts) == 16
    # Binomial with mean 1,000: its standard deviation is 31, and this is five of them.
    assert all(845 < count < 1155 for count in counts.values())


@pytest.mark.parametrize("count", [0, -1, MAX_SHARDS + 1])
def test_a_shard_count_out_of_range_is_refused(count):
    with pytest.raises(ValueError, match="shard_count must be"):
        ShardPlan(count)


def test_processes_with_other_hash_seeds_agree():
    code = "from embedmill.sharding import ShardPlan; print(ShardPlan(1000).shard_of('a'))"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert answers == {"343\n"}
