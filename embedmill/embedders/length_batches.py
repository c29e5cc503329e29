"""Which texts go through a model together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping


def length_batches(lengths: Mapping[int, int], rows: int, tokens: int) -> Iterator[list[int]]:
    """Yield batches of keys, longest texts first, so that little is padded.

    Args:
        lengths: of the texts, in tokens, by key.
        rows: of a batch, whatever the lengths.
        tokens: a batch of short texts may have more rows until it has so many, padded.
    """
    batch: list[int] = []
    longest = 1
    for key, length in sorted(lengths.items(), key=lambda item: (-item[1], item[0])):
        if len(batch) >= max(rows, tokens // longest):
            yield batch
            batch = []
        if not batch:
            longest = max(1, length)
        batch.append(key)
    if batch:
        yield batch
