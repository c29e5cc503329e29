"""The fake Pinecone's state: indexes, namespaces with a log of writes, and what reads see of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from embedmill.testing.pinecone_fake_faults import Fault

Values: TypeAlias = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How the server behaves, beside its faults.

    Attributes:
        api_key: the right one; empty: any.
        index_lag_s: after which queries and fetches see a write.
        stats_lag_s: after which, beyond that, statistics and listings do.
        lsn_headers: whether replies say positions.
        ready_after: describes of a new index before it is ready.
        most_indexes: before a create is refused by quota.
        discard: answer upserts without looking at them, for measuring clients; those into a
            namespace that begins with an underscore are kept.
        import_looks: describes of an import before it ends.
        bucket: contents of a bucket by address, of all below the one given; what imports read.
        clock: seconds.
    """

    api_key: str = ""
    index_lag_s: float = 0.0
    stats_lag_s: float = 0.0
    lsn_headers: bool = True
    ready_after: int = 0
    most_indexes: int = 5
    discard: bool = False
    import_looks: int = 2
    bucket: Callable[[str], Mapping[str, bytes]] = lambda _: {}
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class Stored:
    """One record."""

    values: Values
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Change:
    """One write: records by id, None for a deleted one."""

    time: float
    position: int
    records: Mapping[str, Stored | None]


class View:
    """Records as they were some time ago; moves on when it is looked at."""

    def __init__(self) -> None:
        self.records: dict[str, Stored] = {}
        self.position = 0
        self._applied = 0
        self._matrix: tuple[list[str], Values] | None = None

    def advance(self, log: Sequence[Change], until: float) -> None:
        """Apply what was written up to a time."""
        while self._applied < len(log) and log[self._applied].time <= until:
            change = log[self._applied]
            self._applied += 1
            self.position = change.position
            self._matrix = None
            for record, stored in change.records.items():
                if stored is None:
                    self.records.pop(record, None)
                else:
                    self.records[record] = stored

    def matrix(self, dimension: int) -> tuple[list[str], Values]:
        """Ids and vectors, row by row."""
        if self._matrix is None:
            rows = [stored.values for stored in self.records.values()]
            vectors = np.array(rows, dtype=np.float32).reshape(len(rows), dimension)
            self._matrix = (list(self.records), vectors)
        return self._matrix


class Namespace:
    """A log of writes and two views of it.

    Attributes:
        options: of the server, or of its own.
    """

    def __init__(self, options: ServerOptions) -> None:
        self.options = options
        self._log: list[Change] = []
        self._indexed = View()
        self._counted = View()

    def write(self, records: Mapping[str, Stored | None]) -> int:
        """Append a write; return its position."""
        position = len(self._log) + 1
        self._log.append(Change(self.options.clock(), position, records))
        return position

    def indexed(self) -> View:
        """What queries and fetches see."""
        self._indexed.advance(self._log, self.options.clock() - self.options.index_lag_s)
        return self._indexed

    def counted(self) -> View:
        """What statistics and listings see."""
        lag = self.options.index_lag_s + self.options.stats_lag_s
        self._counted.advance(self._log, self.options.clock() - lag)
        return self._counted

    def written(self) -> dict[str, Stored]:
        """What was written, whatever reads see; for tests."""
        view = View()
        view.advance(self._log, float("inf"))
        return view.records


@dataclass(slots=True)
class FakeImport:
    """One bulk import.

    Attributes:
        id: of it.
        uri: of its files.
        mode: ``abort`` or ``continue`` at a bad record.
        status: in the service's words.
        records: read so far.
        error: why it failed.
        looks: how often it was described.
        hidden_looks: listings that do not have it yet.
        ending: how it ends, other than well.
    """

    id: str
    uri: str
    mode: str
    status: str = "Pending"
    records: int = 0
    error: str = ""
    looks: int = 0
    hidden_looks: int = 0
    ending: Fault | None = None


@dataclass(slots=True)
class FakeIndex:
    """One index.

    Attributes:
        name: of it.
        vectors: dimension and metric, as the schema has them.
        deployment: where it was asked for.
        options: of the server.
        namespaces: by name.
        aliases: target by alias.
        looks: how often it was described.
        imports: bulk imports, oldest first.
    """

    name: str
    vectors: dict[str, Any]
    deployment: dict[str, Any]
    options: ServerOptions
    namespaces: dict[str, Namespace] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    looks: int = 0
    imports: list[FakeImport] = field(default_factory=list)

    @property
    def dimension(self) -> int:
        """Of its vectors."""
        return int(self.vectors["dimension"])

    @property
    def metric(self) -> str:
        """How it compares."""
        return str(self.vectors["metric"])

    def read(self, name: str) -> Namespace | None:
        """The namespace that a read means: by name, or by alias."""
        return self.namespaces.get(self.aliases.get(name, name))


@dataclass(slots=True)
class Project:
    """All indexes; ``lock`` is held while a request is worked on."""

    options: ServerOptions
    indexes: dict[str, FakeIndex] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
