"""What can go wrong at the fake Pinecone, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault

Route = Literal[
    "indexes.create",
    "indexes.list",
    "indexes.get",
    "indexes.delete",
    "vectors.upsert",
    "vectors.delete",
    "vectors.fetch",
    "vectors.list",
    "vectors.query",
    "stats",
    "namespaces.create",
    "namespaces.list",
    "namespaces.get",
    "namespaces.delete",
    "aliases.create",
    "aliases.list",
    "aliases.get",
    "aliases.repoint",
    "aliases.delete",
    "imports.start",
    "imports.list",
    "imports.get",
    "imports.cancel",
]
Deed = Literal[
    CommonDeed,
    # Instead of the work.
    "rate-limit",
    "month-limit",
    "quota",
    "no-money",
    "bad-key",
    "forbidden",
    "too-large",
    "error",
    # Of vectors.upsert: the server's own mind about records.
    "refuse-id",
    "store-some",
    "store-none",
    # Of imports.start: how the import ends; it fails having read all, somebody cancels it, it loses
    # a record, it never ends; listings do not have it for ``count`` looks.
    "fail",
    "cancel",
    "lose",
    "stall",
    "list-lag",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route.
        do: what goes wrong.
        count: records that ``store-some`` stores.
        status: of ``error``.
        value: words of ``fail``, id of ``refuse-id``, message of ``error`` (``{key}``: the caller's
            API key), header of ``rate-limit``.
    """

    at: Route
    do: Deed
    count: int = 0
    status: int = 500
