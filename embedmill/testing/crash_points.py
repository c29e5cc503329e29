"""Crash points: count every effect of a process, and let it die before or after any one of them.

All that a run changes goes through its workspace, its store and its embedder. A :class:`Process`
wraps the three. It numbers their effects in one sequence and raises :class:`Crash` at the number
that it was told; from then on every further call raises too, so that no ``finally`` tidies up what
a killed process could not. The next process wraps what the first one left.

Reading is no effect. Calls that touch several things count as several effects: files are deleted
one by one, and a store takes and deletes records in two halves, so that a crash can come between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar
from uuid import UUID

from embedmill.assembly import Seams
from embedmill.embedder import EmbeddedTexts, Embedder, Role, Vectors
from embedmill.payload import Filter
from embedmill.vector_store import CollectionSpec, Hit, Rejection, VectorBatch, VectorStore
from embedmill.workspace import Entry, Workspace

T = TypeVar("T")
Kind = Literal[
    "create",
    "replace",
    "delete",
    "embed",
    "submit",
    "cancel",
    "make",
    "upsert",
    "remove",
    "alias",
    "drop",
]
# "after": the effect has happened, and whoever asked for it never learns.
Moment = Literal["before", "after"]


class Crash(BaseException):
    """The process ends here and now; not an ``Exception``, so that no recovery catches it."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One thing that a process changed, paid for, or died in.

    Attributes:
        kind: ``create``, ``replace`` and ``delete`` of files; ``embed``; ``submit`` and ``cancel``
            of embedding jobs; ``make`` (a collection), ``upsert``, ``remove`` (records), ``alias``
            and ``drop`` of the store.
        target: path, collection, alias or key of a job; "" for the embedder.
        texts: that the embedder was asked for.
    """

    kind: Kind
    target: str
    texts: tuple[str, ...] = ()


@dataclass(slots=True)
class Process:
    """One life, from the first effect to the end or to the crash.

    Attributes:
        crash_at: number of the effect that it dies at, from 1; None lets it live.
        moment: whether that effect still happens.
        effects: those that were begun, in order; the one that a process died before is left out.
        crashed: it is dead.
    """

    crash_at: int | None = None
    moment: Moment = "before"
    effects: list[Effect] = field(default_factory=list)
    crashed: bool = False

    def seams(
        self,
        *,
        workspace: Callable[[Workspace], Workspace] = lambda real: real,
        embedder: Callable[[Embedder], Embedder] = lambda real: real,
        store: Callable[[VectorStore], VectorStore] = lambda real: real,
    ) -> Seams:
        """Wrappers for ``embedmill.assembly.seams`` that let all effects happen in this process.

        Args:
            workspace: makes what is wrapped of what the settings name; the storage outlives the
                process.
            embedder: the same for the embedder, for instance one that refuses some texts.
            store: the same for the store.
        """
        return Seams(
            workspace=lambda real: CrashingWorkspace(workspace(real), self),
            embedder=lambda real: CrashingEmbedder(embedder(real), self),
            store=lambda real: CrashingStore(store(real), self),
        )

    def embedded(self) -> Counter[str]:
        """How often the embedder was asked for each text; a crash in the call counts as asked."""
        return Counter(text for effect in self.effects for text in effect.texts)

    def alive(self) -> None:
        """Raise :class:`Crash` when this process is dead."""
        if self.crashed:
            raise Crash("the process is dead")

    def effect(self, effect: Effect, act: Callable[[], T]) -> T:
        """Let an effect happen, unless the process dies before it.

        Raises:
            Crash: it died, now or earlier.
        """
        self.alive()
        dies = len(self.effects) + 1 == self.crash_at
        if dies and self.moment == "before":
            self._die(effect)
        self.effects.append(effect)
        if not dies:
            return act()
        try:
            act()
        finally:
            # Whether it worked or failed: nobody is left to learn of it.
            self._die(effect)
        raise AssertionError

    def _die(self, effect: Effect) -> None:
        self.crashed = True
        raise Crash(f"{self.moment} {effect.kind} {effect.target}".strip())


class CrashingWorkspace:
    """A workspace whose effects happen in a process; see ``Workspace``."""

    def __init__(self, real: Workspace, process: Process) -> None:
        self.url = real.url
        self._real = real
        self._process = process

    def create(self, path: str, data: bytes) -> None:
        """One effect."""
        self._process.effect(Effect("create", path), lambda: self._real.create(path, data))

    def replace(self, path: str, data: bytes) -> None:
        """One effect."""
        self._process.effect(Effect("replace", path), lambda: self._real.replace(path, data))

    def read(self, path: str) -> bytes | None:
        """No effect."""
        self._process.alive()
        return self._real.read(path)

    def exists(self, path: str) -> bool:
        """No effect."""
        self._process.alive()
        return self._real.exists(path)

    def list(self, prefix: str) -> Iterator[Entry]:
        """No effect."""
        self._process.alive()
        return self._real.list(prefix)

    def delete(self, paths: Sequence[str]) -> None:
        """As many effects as there are paths."""
        for path in paths:
            self._delete(path)

    def _delete(self, path: str) -> None:
        self._process.effect(Effect("delete", path), lambda: self._real.delete([path]))


class CrashingEmbedder:
    """An embedder whose calls happen in a process; see ``Embedder``. Queries are no effect."""

    def __init__(self, real: Embedder, process: Process) -> None:
        self.recipe = real.recipe
        self._real = real
        self._process = process

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """One effect for documents, however many texts there are."""
        if role == "query":
            self._process.alive()
            return self._real.embed(texts, role)
        effect = Effect("embed", "", tuple(texts))
        return self._process.effect(effect, lambda: self._real.embed(texts, role))


class CrashingStore:
    """A store whose effects happen in a process; see ``VectorStore``."""

    def __init__(self, real: VectorStore, process: Process) -> None:
        self.limits = real.limits
        self._real = real
        self._process = process

    def create_collection(self, collection: str, spec: CollectionSpec) -> None:
        """One effect."""
        effect = Effect("make", collection)
        self._process.effect(effect, lambda: self._real.create_collection(collection, spec))

    def upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        """Two effects, each with half of the records; one for a single record."""
        rejections = []
        for rows in halves(len(batch.ids)):
            found = self._upsert(collection, batch.take(rows))
            rejections += [Rejection(rows[one.row], one.code, one.message) for one in found]
        return rejections

    def _upsert(self, collection: str, batch: VectorBatch) -> Sequence[Rejection]:
        effect = Effect("upsert", collection)
        return self._process.effect(effect, lambda: self._real.upsert(collection, batch))

    def delete(self, collection: str, ids: Sequence[UUID]) -> None:
        """Two effects, each with half of the ids; one for a single id."""
        for rows in halves(len(ids)):
            self._delete(collection, [ids[row] for row in rows])

    def _delete(self, collection: str, ids: Sequence[UUID]) -> None:
        effect = Effect("remove", collection)
        self._process.effect(effect, lambda: self._real.delete(collection, ids))

    def set_alias(self, alias: str, collection: str) -> None:
        """One effect."""
        effect = Effect("alias", alias)
        self._process.effect(effect, lambda: self._real.set_alias(alias, collection))

    def drop_collection(self, collection: str) -> None:
        """One effect."""
        effect = Effect("drop", collection)
        self._process.effect(effect, lambda: self._real.drop_collection(collection))

    def fetch(self, collection: str, ids: Sequence[UUID]) -> VectorBatch:
        """No effect."""
        self._process.alive()
        return self._real.fetch(collection, ids)

    def search(
        self, collection: str, vector: Vectors, k: int, where: Filter | None = None
    ) -> Sequence[Hit]:
        """No effect."""
        self._process.alive()
        return self._real.search(collection, vector, k, where)

    def count(self, collection: str) -> int:
        """No effect."""
        self._process.alive()
        return self._real.count(collection)

    def ids(self, collection: str) -> Iterator[UUID]:
        """No effect."""
        self._process.alive()
        return self._real.ids(collection)

    def collections(self) -> Sequence[str]:
        """No effect."""
        self._process.alive()
        return self._real.collections()

    def alias_target(self, alias: str) -> str | None:
        """No effect."""
        self._process.alive()
        return self._real.alias_target(alias)

    def close(self) -> None:
        """No effect, and allowed to the dead: the operating system closes what they held."""
        self._real.close()


def halves(count: int) -> list[range]:
    """The rows of a batch in two parts, or in one when there is a single row."""
    middle = count // 2
    return [part for part in (range(middle), range(middle, count)) if part]
