"""What can go wrong at the fake Weaviate, and where."""

from __future__ import annotations

from typing import Literal

from embedmill.testing.fault_plan import CommonDeed, PlannedFault

Route = Literal[
    # REST.
    "meta",
    "schema.list",
    "schema.get",
    "schema.create",
    "schema.delete",
    "properties.create",
    "shards",
    "aliases.list",
    "aliases.get",
    "aliases.create",
    "aliases.update",
    "aliases.delete",
    # gRPC.
    "objects.batch",
    "objects.delete",
    "search",
    "aggregate",
    "tenants.get",
]
Deed = Literal[
    CommonDeed,
    # Instead of the work.
    "rate-limit",
    "error",
    "bad-key",
    "forbidden",
    "too-large",
    "unavailable",
    "not-leader",
    # The work is done; the reply is an error.
    "error-reply",
    # Of objects.batch: each object's own error, in a reply that is a success.
    "read-only",
    "disk-full",
    "memory",
    "replicas",
    "poison",
    "refuse-all",
    # Of objects.batch and objects.delete: some of the work is done.
    "partial",
    "silent-drop",
    "wrong-index",
    # Of aggregate: objects that the count lacks.
    "lag",
]


class Fault(PlannedFault):
    """One thing that goes wrong.

    Attributes:
        at: route.
        do: what goes wrong.
        count: objects that are lost, that a count lacks.
        value: of ``error`` a status of HTTP, of ``poison`` a text that no object may hold.
    """

    at: Route
    do: Deed
