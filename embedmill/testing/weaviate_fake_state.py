"""The fake Weaviate's state: collections, their objects by tenant, aliases."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

# Of one query or deletion: QUERY_MAXIMUM_RESULTS, as delivered.
MAX_RESULTS = 10_000


class ServerError(Exception):
    """What the server refuses, by the words it has for it; REST adds a status."""

    def __init__(self, words: str, status: int = 422) -> None:
        super().__init__(words)
        self.words = words
        self.status = status


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How it behaves when nothing goes wrong.

    Attributes:
        api_key: that is asked for; empty: none.
        version: that it says it is; aliases are there from 1.32 on.
        auto_schema: whether a property that was not declared is added as the first object has it.
        max_results: objects that one query or deletion handles at most.
        tells_all_matches: whether a deletion reports all that it matched, not just what it handled.
        max_message: bytes of one gRPC message at most.
        queued_looks: looks at its shards that find vectors still to be indexed after a write.
        copy_lag: reads of a single copy that do not have a new object yet: counts, and what is
            read at the level ONE.
        max_collections: that it takes.
        discard: answer batches of objects without looking at them, for measuring clients.
    """

    api_key: str = ""
    version: str = "1.34.0"
    auto_schema: bool = True
    max_results: int = MAX_RESULTS
    tells_all_matches: bool = False
    max_message: int = 104_858_000
    queued_looks: int = 0
    copy_lag: int = 0
    max_collections: int = 1000
    discard: bool = False


@dataclass(slots=True)
class FakeObject:
    """One object; ``queued`` while its vectors wait to be indexed, ``behind`` as it is copied."""

    properties: dict[str, Any]
    vectors: dict[str, npt.NDArray[np.float32]]
    queued: bool = False
    behind: int = 0


@dataclass(slots=True)
class FakeClass:
    """One collection.

    Attributes:
        definition: as the server describes it.
        objects: by tenant and id; the tenant is empty without multi-tenancy.
        dimensions: of each named vector; fixed by the first object.
        queued_looks: how many more looks find vectors still to be indexed.
        read_only: whether its shards are.
        states: of the tenants that are not active: INACTIVE, OFFLOADING, OFFLOADED, ONLOADING.
    """

    definition: dict[str, Any]
    objects: dict[str, dict[str, FakeObject]] = field(default_factory=dict)
    dimensions: dict[str, int] = field(default_factory=dict)
    queued_looks: int = 0
    read_only: bool = False
    states: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Of the collection."""
        return str(self.definition["class"])

    @property
    def tenanted(self) -> bool:
        """Whether every object is of a tenant."""
        return bool(self.definition["multiTenancyConfig"]["enabled"])

    def property(self, name: str) -> dict[str, Any] | None:
        """A property's definition; names differ by more than the case of their first letter."""
        return next((one for one in self.definition["properties"] if one["name"] == name), None)

    def of_tenant(self, tenant: str, *, create: bool = False) -> dict[str, FakeObject]:
        """Objects of a tenant.

        Raises:
            ServerError: a tenant is missing, not wanted, or not there.
        """
        if not self.tenanted:
            if tenant:
                raise ServerError(
                    f"class {self.name} has multi-tenancy disabled, but request was with tenant"
                )
            return self.objects.setdefault("", {})
        if not tenant:
            raise ServerError(
                f"class {self.name} has multi-tenancy enabled, but request was without tenant"
            )
        if tenant not in self.objects:
            auto = self.definition["multiTenancyConfig"]["autoTenantCreation"]
            if not (create and auto):
                raise ServerError(f'tenant not found: "{tenant}"')
            self.objects[tenant] = {}
        self._activate(tenant)
        return self.objects[tenant]

    def _activate(self, tenant: str) -> None:
        state = self.states.get(tenant, "ACTIVE")
        auto = self.definition["multiTenancyConfig"]["autoTenantActivation"]
        if state == "INACTIVE" and auto:
            del self.states[tenant]
        elif state != "ACTIVE":
            raise ServerError(f"tenant not active: {tenant!r}")


class FakeState:
    """All that one server holds; every change is made under its lock.

    Attributes:
        options: how it behaves.
        classes: by name.
        aliases: collection by alias.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self.classes: dict[str, FakeClass] = {}
        self.aliases: dict[str, str] = {}
        self.lock = threading.RLock()

    @property
    def has_aliases(self) -> bool:
        """Whether the version has them."""
        major, minor = self.options.version.split(".")[:2]
        return (int(major), int(minor)) >= (1, 32)

    def get(self, name: str) -> FakeClass:
        """A collection by its name or by an alias.

        Raises:
            ServerError: there is none.
        """
        found = self.classes.get(self.aliases.get(name, name))
        if found is None:
            raise ServerError(f"could not find class {name} in schema", 404)
        return found

    def similar(self, name: str) -> str | None:
        """A collection whose name differs at most in case."""
        return next((one for one in self.classes if one.lower() == name.lower()), None)
