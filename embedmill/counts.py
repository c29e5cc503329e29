"""Counts of a run; they are added up and checked, never estimated."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from operator import add, attrgetter
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class _Additive:
    def __add__(self, other: Self) -> Self:
        # Whenever the driver looks: field by field it takes more than twice the time.
        kind: Any = type(self)
        values = _values_of(kind)
        total: Self = kind(*map(add, values(self), values(other)))
        return total


@cache
def _values_of(kind: type[_Additive]) -> attrgetter[Any]:
    return attrgetter(*(field.name for field in fields(kind)))


@dataclass(frozen=True, slots=True)
class DocumentCounts(_Additive):
    """Documents of a scan. ``read == added + changed + unchanged + dead`` always.

    Attributes:
        read: rows that the source held.
        added: not in the index before this run.
        changed: other content than before.
        unchanged: nothing to do.
        recognised: of the added, changed and unchanged: listed as they were when they were read
            last, and not read again. Nearly all are unchanged; those that this run has read
            before a worker died count as what they were then.
        dead: could not be read, parsed or chunked.
        empty: of the added, changed and unchanged: those without any text.
        removed: gone from the source, deleted from the index (not part of ``read``).
        warnings: things a person should know, logged with the document.
        unidentified: of the dead: rows whose id could not be read. They may be any document, so a
            scan with such rows deletes nothing.
        withheld: gone from the source as it seems, and kept in the index: of some rows the ids
            could not be read, or they are more than may be deleted.
    """

    read: int = 0
    added: int = 0
    changed: int = 0
    unchanged: int = 0
    dead: int = 0
    empty: int = 0
    removed: int = 0
    warnings: int = 0
    unidentified: int = 0
    recognised: int = 0
    withheld: int = 0


@dataclass(frozen=True, slots=True)
class ChunkCounts(_Additive):
    """Chunks of segments that got vectors in a run.

    ``chunks == embedded + reused + deduplicated + dead + superseded`` always.

    Attributes:
        chunks: rows of the segments.
        embedded: through the model.
        reused: vector taken from the document's earlier version.
        deduplicated: vector taken from an equal text of the same run.
        dead: no vector.
        truncated: longer than the model's window, embedded by their beginning.
        tokens: that the model saw.
        superseded: no vector, for the document has changed again or is gone.
    """

    chunks: int = 0
    embedded: int = 0
    reused: int = 0
    deduplicated: int = 0
    dead: int = 0
    truncated: int = 0
    tokens: int = 0
    superseded: int = 0


@dataclass(frozen=True, slots=True)
class RecordCounts(_Additive):
    """What the store confirmed.

    Attributes:
        upserted: records written.
        deleted: stale ids deleted.
        rejected: records that the store, or the check before it, did not take.
        partial: documents that have records for some, but not for all of their chunks.
    """

    upserted: int = 0
    deleted: int = 0
    rejected: int = 0
    partial: int = 0


@dataclass(frozen=True, slots=True)
class RateUse(_Additive):
    """What a run used of a rate budget, in realtime requests.

    Attributes:
        requests: that were permitted.
        tokens: that were charged for.
        throttled: refusals of the provider for the rate.
        waited_s: for permits, all workers together.
        dollars: charged for, by the price in the settings.
        stated_requests: by the minute, that the provider allows the account, where the settings
            name more or no limit; the lowest that any worker was told. 0: it is not so.
        stated_tokens: likewise.
    """

    requests: int = 0
    tokens: int = 0
    throttled: int = 0
    waited_s: float = 0.0
    dollars: float = 0.0
    stated_requests: int = 0
    stated_tokens: int = 0

    def __add__(self, other: Self) -> Self:
        # Written out: it is added for every request.
        return type(self)(
            self.requests + other.requests,
            self.tokens + other.tokens,
            self.throttled + other.throttled,
            self.waited_s + other.waited_s,
            self.dollars + other.dollars,
            _lowest(self.stated_requests, other.stated_requests),
            _lowest(self.stated_tokens, other.stated_tokens),
        )


def _lowest(one: int, other: int) -> int:
    return min(one or other, other or one)


@dataclass(frozen=True, slots=True)
class WriteCounts(_Additive):
    """What it took to write to a store over the network.

    Attributes:
        requests: that write, repetitions included.
        rate_limited: refused as too many; part of ``transient``.
        transient: refused for the moment, or not sent at all.
        unknown: without a reply that says how they ended.
        halvings: of a writer's share of time with a request in flight.
        waited_s: seconds that writers waited for the store, added up over all of them.
    """

    requests: int = 0
    rate_limited: int = 0
    transient: int = 0
    unknown: int = 0
    halvings: int = 0
    waited_s: float = 0.0
