"""How large a batch is best on a GPU: found once for each model, number format and device."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from embedmill.made_once import made_once
from embedmill.recipe import fingerprint_of

log = logging.getLogger(__name__)
# Tokens of the smallest batch that is tried, and of the largest; each is twice the one before.
_SMALLEST, _LARGEST = 4_096, 1_048_576
# A larger batch is taken for so much more speed: memory may be wanted by others.
_WORTH = 1.03
_TRIES = 3


def tokens_found_once(facts: Sequence[str], seconds: Callable[[int], float | None]) -> int:
    """Tokens of the batch that is best on a device; measured by the first process that asks.

    Args:
        facts: all that decides it: weights, dtype, name and memory of the device, library.
        seconds: computes one batch of so many tokens and says how long it took; None where the
            memory does not take it.

    Returns:
        Tokens of a batch, padding included.
    """

    def make(folder: Path) -> None:
        tokens = best_tokens(seconds)
        log.info("batches of %d tokens are best on %s; kept", tokens, ", ".join(facts))
        (folder / "batch.json").write_bytes(orjson.dumps({"tokens": tokens, "facts": list(facts)}))

    kept = made_once(f"gpu-batch-{fingerprint_of(list(facts))}", make)
    found: int = orjson.loads((kept / "batch.json").read_bytes())["tokens"]
    return found


def best_tokens(seconds: Callable[[int], float | None]) -> int:
    """Double the batch for as long as the memory takes it and it gets faster by 3 %.

    Args:
        seconds: see :func:`tokens_found_once`; asked several times for each size, as the first
            batch of a size prepares what later ones use again.

    Returns:
        The smallest size where not even that fits: whoever computes halves what does not fit.
    """
    best, rate = _SMALLEST, 0.0
    tokens = _SMALLEST
    while tokens <= _LARGEST:
        found = _fastest(seconds, tokens)
        if found is None or tokens / found < _WORTH * rate:
            break
        best, rate = tokens, tokens / found
        tokens *= 2
    return best


def _fastest(seconds: Callable[[int], float | None], tokens: int) -> float | None:
    found = None
    for _ in range(_TRIES):
        took = seconds(tokens)
        if took is None:
            return None
        found = took if found is None else min(found, took)
    return found
