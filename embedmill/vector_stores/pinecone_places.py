"""Which Pinecone index a collection is in, and where an alias leads.

An index has one dimension and one metric for ever. A collection that fits neither goes into an
index beside it, whose name ends with both (``docs-1536-cosine``). Namespace aliases belong to one
index; where one is set in several, because it moved from one to another a moment ago, a record in
the registry of the first says which of them holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from embedmill.errors import RefusedError
from embedmill.pinecone_settings import PineconeSettings
from embedmill.store_checks import check_name
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.pinecone_client import PineconeClient
from embedmill.vector_stores.pinecone_data import PineconeData
from embedmill.vector_stores.pinecone_freshness import Freshness
from embedmill.vector_stores.pinecone_registry import Registry


@dataclass(frozen=True, slots=True)
class OpenedIndex:
    """An index that is connected to."""

    name: str
    data: PineconeData
    freshness: Freshness
    registry: Registry


@dataclass(frozen=True, slots=True)
class Found:
    """A collection: its index and what it was made for."""

    opened: OpenedIndex
    spec: CollectionSpec


class Places:
    """The indexes of a store, and what is in which of them."""

    def __init__(
        self,
        settings: PineconeSettings,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        self._client: PineconeClient | None = PineconeClient(settings, clock=clock, sleep=sleep)
        self._opened: dict[str, OpenedIndex] = {}
        self._known: dict[str, Found] = {}

    def all(self) -> list[OpenedIndex]:
        """The indexes that there are and that take requests; the settings' own first."""
        client = self._must_be_open()
        for name, facts in client.siblings().items():
            if name not in self._opened and facts.ready:
                self._open(name)
        return sorted(self._opened.values(), key=lambda one: one.name != self._settings.index)

    def find(self, collection: str) -> Found | None:
        """Where a collection is, or None when there is none of that name."""
        self._must_be_open()
        if collection not in self._known and _could_be(collection):
            for opened in self.all():
                # The namespace makes it exist; a record alone is what a crash left.
                specs = {}
                if opened.data.has_namespace(collection):
                    specs = opened.registry.read([collection])
                if collection in specs:
                    self._known[collection] = Found(opened, specs[collection])
        return self._known.get(collection)

    def open_for(self, spec: CollectionSpec) -> OpenedIndex:
        """The index that such vectors go into; made when there is none.

        Raises:
            RefusedError: none may be created.
            TransientError: it is not ready in time.
            StopRunError: it will never be.
        """
        name = self._must_be_open().ready_for(spec)
        return self._opened.get(name) or self._open(name)

    def made(self, collection: str, opened: OpenedIndex, spec: CollectionSpec) -> None:
        """Remember a collection that was created."""
        self._known[collection] = Found(opened, spec)

    def forget(self, collection: str) -> None:
        """It is gone, or may be."""
        self._known.pop(collection, None)

    def alias_target(self, alias: str) -> str | None:
        """The collection that an alias leads to, or None when there is no such alias."""
        found = {one.name: one.data.alias_target(alias) for one in self.all()}
        holders = {name: target for name, target in found.items() if target is not None}
        if len(holders) < 2:
            return next(iter(holders.values()), None)
        chosen = self.all()[0].registry.chosen(alias)
        return holders.get(chosen) or next(iter(holders.values()))

    def point(self, alias: str, collection: str, opened: OpenedIndex) -> None:
        """Let an alias lead to a collection, in one step.

        Where it leads into another index from now on, the step is that the registry says so.
        """
        opened.data.point_alias(alias, collection)
        others = [
            one
            for one in self.all()
            if one.name != opened.name and one.data.alias_target(alias) is not None
        ]
        if others:
            self.all()[0].registry.choose(alias, opened.name)
        for other in others:
            other.data.delete_alias(alias)

    def close(self) -> None:
        """Let go of connections."""
        if self._client is not None:
            self._client.close()
            self._client = None
        while self._opened:
            self._opened.popitem()[1].data.close()

    def _open(self, name: str) -> OpenedIndex:
        client = self._must_be_open()
        facts, index, transport = client.connect(name)
        data = PineconeData(index, transport, facts.dimension, client.secrets)
        freshness = Freshness(
            data,
            timeout_s=self._settings.consistency_timeout_s,
            settles_s=self._settings.count_settles_s,
            clock=self._clock,
            sleep=self._sleep,
        )
        opened = OpenedIndex(name, data, freshness, Registry(data, freshness))
        self._opened[name] = opened
        return opened

    def _must_be_open(self) -> PineconeClient:
        if self._client is None:
            raise RefusedError("the store was closed")
        return self._client


def _could_be(name: str) -> bool:
    try:
        check_name(name)
    except RefusedError:
        return False
    return True
