"""The largest batch that is worth it, on devices of which only the arithmetic is there."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from embedmill.local_models.gpu_batch import best_tokens, tokens_found_once


@dataclass
class Device:
    """Takes so many tokens at once; a batch costs a fixed time and a time for each token."""

    memory: int
    fixed: float = 1.0
    each: float = 1e-4
    seen: list[int] = field(default_factory=list)

    def seconds(self, tokens: int) -> float | None:
        first = tokens not in self.seen
        self.seen.append(tokens)
        if tokens > self.memory:
            return None
        # The first batch of a size prepares what the later ones use.
        return self.fixed + self.each * tokens + (10.0 if first else 0.0)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EMBEDMILL_CACHE", str(tmp_path))
    return tmp_path


def test_it_is_doubled_for_as_long_as_the_memory_takes_it():
    assert best_tokens(Device(memory=40_000).seconds) == 32_768


def test_it_is_doubled_for_as_long_as_it_gets_faster():
    # 1 + 26.2 s for 262,144 tokens and 1 + 13.1 s for half of them: 3.7 % faster; then 1.9 %.
    assert best_tokens(Device(memory=10**9).seconds) == 262_144
    assert best_tokens(Device(memory=10**9, fixed=0.0).seconds) == 4_096


def test_it_ends_at_the_largest_that_is_tried():
    assert best_tokens(Device(memory=10**9, fixed=1e6).seconds) == 1_048_576


def test_where_not_even_the_smallest_fits_it_is_the_smallest():
    """Texts that are too long together are halved when they come."""
    device = Device(memory=100)
    assert best_tokens(device.seconds) == 4_096
    assert device.seen == [4_096]


def test_it_is_found_once_for_the_same_model_and_device():
    first, second, other = (Device(memory=20_000) for _ in range(3))
    assert tokens_found_once(["weights", "bfloat16", "A"], first.seconds) == 16_384
    assert tokens_found_once(["weights", "bfloat16", "A"], second.seconds) == 16_384
    assert first.seen
    assert not second.seen
    assert tokens_found_once(["weights", "float32", "A"], other.seconds) == 16_384
    assert other.seen


def test_a_device_that_fails_meanwhile_leaves_nothing_to_believe(cache):
    def lost(tokens: int) -> float | None:
        raise RuntimeError(f"CUDA error at {tokens}")

    with pytest.raises(RuntimeError, match="CUDA error"):
        tokens_found_once(["weights"], lost)
    assert not [path for path in cache.iterdir() if path.is_dir()]
    assert tokens_found_once(["weights"], Device(memory=9_000).seconds) == 8_192
