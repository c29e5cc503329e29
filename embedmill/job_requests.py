"""The rows of a file of requests, in a few bytes each: jobs fly for hours, thousands of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from embedmill.segment import SegmentKey

# Rows of one request, all of one segment.
Request = tuple[tuple[SegmentKey, int], ...]


def custom_id(request: Request) -> str:
    """Of a request: names its first row, ``7.12.345`` for row 345 of segment 12 of shard 7."""
    key, row = request[0]
    return f"{key.shard}.{key.number}.{row}"


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Requests of one segment that stand together: rows, and how many each request has."""

    key: SegmentKey
    rows: array[int] = field(default_factory=lambda: array("i"))
    sizes: array[int] = field(default_factory=lambda: array("i"))

    def requests(self) -> Iterator[Request]:
        start = 0
        for size in self.sizes:
            yield tuple((self.key, row) for row in self.rows[start : start + size])
            start += size


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in the order of a file's lines. Eight bytes a row at most."""

    stretches: tuple[_Stretch, ...] = ()

    @classmethod
    def of(cls, requests: Iterable[Request]) -> Self:
        """From rows of one request each."""
        stretches: list[_Stretch] = []
        for request in requests:
            key = request[0][0]
            if not stretches or stretches[-1].key != key:
                stretches.append(_Stretch(key))
            stretches[-1].rows.extend(row for _, row in request)
            stretches[-1].sizes.append(len(request))
        return cls(tuple(stretches))

    def __iter__(self) -> Iterator[Request]:
        for stretch in self.stretches:
            yield from stretch.requests()

    def __len__(self) -> int:
        return sum(len(stretch.sizes) for stretch in self.stretches)

    def rows(self) -> dict[SegmentKey, Sequence[int]]:
        """Rows by segment, each in the order of the lines."""
        found: dict[SegmentKey, array[int]] = {}
        for stretch in self.stretches:
            found.setdefault(stretch.key, array("i")).extend(stretch.rows)
        return dict(found)

    def to_json(self) -> list[list[Any]]:
        """Shard, number, rows and sizes of each stretch; sizes are 1 where all are."""
        return [
            [
                stretch.key.shard,
                stretch.key.number,
                stretch.rows.tolist(),
                1 if set(stretch.sizes) == {1} else stretch.sizes.tolist(),
            ]
            for stretch in self.stretches
        ]

    @classmethod
    def from_json(cls, record: list[list[Any]]) -> Self:
        """Read what :meth:`to_json` wrote."""
        return cls(
            tuple(
                _Stretch(
                    SegmentKey(shard, number),
                    array("i", rows),
                    array("i", [1] * len(rows) if sizes == 1 else sizes),
                )
                for shard, number, rows, sizes in record
            )
        )
