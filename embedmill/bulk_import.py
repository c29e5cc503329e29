"""Bulk imports: a store reads files from a bucket by itself, and is followed until it has.

Starting one is paid for and cannot be repeated, so it is noted before and after, in the workspace
of the index::

    indexes/<index>/imports/<store>/<collection>/plan.json       which files, how many records
                                                 0001/intent.json    about to be started
                                                 0001/started.json   the service's id
                                                 0001/outcome.json   how it ended
                                                 confirmed.json      its segments count as applied

A process that died between intent and id leaves an import that may run: the next one asks the
service for it, by the address of its files, and starts another only when there is none. Each
attempt goes into a namespace of its own making: what a failed one has left is deleted first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, TypeAlias

from embedmill.errors import OutcomeUnknownError, RefusedError, StopRunError, TransientError
from embedmill.sealed_json import sealed, unsealed
from embedmill.vector_store import CollectionSpec, Rejection, VectorBatch
from embedmill.workspace import Workspace, create_once

log = logging.getLogger(__name__)
ImportStatus: TypeAlias = Literal["running", "completed", "failed"]
# A service's listing may lag behind its imports; looked at again before another one is paid for.
_LOOKS = 6
_STARTS = 6
_BETWEEN_LOOKS_S = 10.0


@dataclass(frozen=True, slots=True)
class ImportState:
    """What the service says of an import.

    Attributes:
        id: of the service.
        status: ``failed`` is also what somebody cancelled.
        records: read so far.
        share: done, 0 to 1.
        error: why it failed, in the service's words.
    """

    id: str
    status: ImportStatus
    records: int = 0
    share: float = 0.0
    error: str = ""


class BulkImporter(Protocol):
    """Imports into one collection of a store; what it needs to be found is made, it itself not."""

    def rejections(self, batch: VectorBatch) -> Sequence[Rejection]:
        """Rows that cannot be imported, in order; the same ones every time."""
        ...

    def file_of(self, batches: Sequence[VectorBatch]) -> tuple[bytes, int]:
        """A file as the service wants it, of the rows that can be imported, and their number."""
        ...

    def start(self, url: str) -> str:
        """Start an import of all files below an address; return the service's id.

        Raises:
            OutcomeUnknownError: it may have been started.
            RefusedError: it was not, for what it was asked.
            TransientError: it was not.
        """
        ...

    def started_from(self, url: str) -> Sequence[ImportState]:
        """All imports that were ever started of this address, as far as the service lists them."""
        ...

    def state(self, import_id: str) -> ImportState:
        """What the service says of an import."""
        ...

    def clear(self) -> None:
        """Delete what an attempt has left, and wait until it is gone; absent is no error."""
        ...


class ImportingStore(Protocol):
    """A store that reads files from a bucket by itself."""

    def bulk_importer(self, collection: str, spec: CollectionSpec) -> BulkImporter:
        """Imports into a collection that does not exist yet."""
        ...


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """What is imported.

    Attributes:
        url: address of the files.
        records: in all of them.
        files: their paths below the root of the bucket's workspace.
        until: last segment of every shard that is in them.
    """

    url: str
    records: int
    files: tuple[str, ...]
    until: Mapping[int, int]


class ImportRecords:
    """What is known of the imports into one collection of one store."""

    def __init__(self, workspace: Workspace, index: str, store: str, collection: str) -> None:
        self._workspace = workspace
        self._folder = f"indexes/{index}/imports/{store}/{collection}"

    def plan(self) -> ImportPlan | None:
        """What is imported, or None when that was not decided yet."""
        body = self._read("plan")
        if body is None:
            return None
        until = {int(shard): number for shard, number in body["until"].items()}
        return ImportPlan(body["url"], body["records"], tuple(body["files"]), until)

    def write_plan(self, plan: ImportPlan) -> None:
        """Decide what is imported."""
        until = {str(shard): number for shard, number in plan.until.items()}
        self._write("plan", {**asdict(plan), "files": list(plan.files), "until": until})

    def confirmed(self) -> bool:
        """Whether all that was planned is in the store and recorded."""
        return self._read("confirmed") is not None

    def note_confirmed(self) -> None:
        """Note that nothing is left to be done."""
        self._write("confirmed", {})

    def attempts(self) -> int:
        """Number of the last attempt; 0: none."""
        paths = [entry.path for entry in self._workspace.list(self._folder)]
        names = [path.removeprefix(f"{self._folder}/") for path in paths]
        return max((int(n.split("/")[0]) for n in names if n.endswith("/intent.json")), default=0)

    def intend(self, attempt: int) -> None:
        """Note that an import is about to be started."""
        self._write(f"{attempt:04d}/intent", {"attempt": attempt})

    def started(self, attempt: int) -> str:
        """The service's id; empty when it was not noted."""
        body = self._read(f"{attempt:04d}/started")
        return str(body["id"]) if body else ""

    def note_started(self, attempt: int, import_id: str) -> None:
        """Note the service's id."""
        self._write(f"{attempt:04d}/started", {"id": import_id})

    def outcome(self, attempt: int) -> ImportState | None:
        """How an attempt ended; None while it has not."""
        body = self._read(f"{attempt:04d}/outcome")
        return ImportState(**body) if body else None

    def note_outcome(self, attempt: int, state: ImportState) -> None:
        """Note how an attempt ended."""
        self._write(f"{attempt:04d}/outcome", asdict(state))

    def _read(self, name: str) -> dict[str, Any] | None:
        path = f"{self._folder}/{name}.json"
        data = self._workspace.read(path)
        return None if data is None else unsealed(data, path)

    def _write(self, name: str, body: Mapping[str, object]) -> None:
        path = f"{self._folder}/{name}.json"
        if not create_once(self._workspace, path, sealed(body)):
            raise RefusedError(
                f"another run has written {path} meanwhile: two copies into one store",
                hint="let the other one end, then run the same command again",
            )


class BulkImport:
    """Brings what was planned into the store, once."""

    def __init__(
        self,
        records: ImportRecords,
        importer: BulkImporter,
        plan: ImportPlan,
        *,
        poll_s: float,
        sleep: Callable[[float], None],
        check: Callable[[], None],
    ) -> None:
        """Hold what is needed.

        Args:
            records: of the imports into the collection.
            importer: of the store.
            plan: what is imported.
            poll_s: between two looks at an import that goes on.
            sleep: waits for so many seconds.
            check: called about once a second while waiting; may raise to stop.
        """
        self._records = records
        self._importer = importer
        self._plan = plan
        self._poll_s = poll_s
        self._sleep = sleep
        self._check = check

    def run(self) -> None:
        """Go on with the attempt that is open, or begin one; return when all records are in.

        Raises:
            StopRunError: it failed; running again begins another.
            OutcomeUnknownError: whether it was started is not known; running again looks for it.
        """
        attempt = self._records.attempts()
        ended = self._records.outcome(attempt) if attempt else None
        if ended is not None and ended.status == "completed":
            return
        if attempt == 0 or ended is not None:
            attempt += 1
            self._importer.clear()
            self._records.intend(attempt)
            self._follow(attempt, self._start(attempt))
        else:
            self._follow(attempt, self._records.started(attempt) or self._find_or_start(attempt))

    def _start(self, attempt: int) -> str:
        try:
            import_id = self._started()
        except OutcomeUnknownError:
            found = self._found(attempt)
            if not found:
                raise
            import_id = found
        except (RefusedError, StopRunError, TransientError) as error:
            # Known not to run: the next attempt need not look for it.
            self._records.note_outcome(attempt, ImportState("", "failed", error=str(error)))
            raise
        self._records.note_started(attempt, import_id)
        return import_id

    def _started(self) -> str:
        """Start it; a service that is busy for the moment is asked again."""
        for _ in range(_STARTS - 1):
            try:
                return self._importer.start(self._plan.url)
            except TransientError as error:
                log.warning("the import is not started yet: %s", error)
                self._wait(_BETWEEN_LOOKS_S)
        return self._importer.start(self._plan.url)

    def _find_or_start(self, attempt: int) -> str:
        """The import that an earlier process may have started; another one when it has not."""
        found = self._found(attempt)
        if not found:
            log.info("no import of %s is known to the service; starting it", self._plan.url)
            return self._start(attempt)
        log.info("import %s was started before and is followed", found)
        self._records.note_started(attempt, found)
        return found

    def _found(self, attempt: int) -> str:
        """Id of the import of this attempt: none of an earlier one; empty when there is none."""
        earlier = {self._records.started(number) for number in range(1, attempt)}
        for look in range(_LOOKS):
            if look:
                self._wait(_BETWEEN_LOOKS_S)
            new = [s for s in self._importer.started_from(self._plan.url) if s.id not in earlier]
            if new:
                # Only one can go into a namespace that is not there yet.
                rank = ("completed", "running", "failed")
                return min(new, key=lambda state: rank.index(state.status)).id
        return ""

    def _wait(self, seconds: float) -> None:
        while seconds > 0:
            self._check()
            self._sleep(min(seconds, 1.0))
            seconds -= 1.0

    def _follow(self, attempt: int, import_id: str) -> None:
        while True:
            try:
                state = self._importer.state(import_id)
            except TransientError as error:
                log.warning("import %s cannot be looked at for the moment: %s", import_id, error)
                state = ImportState(import_id, "running")
            if state.status != "running":
                break
            log.info("import %s: %.0f %% read", import_id, 100 * state.share)
            self._wait(self._poll_s)
        if state.status == "completed" and state.records != self._plan.records:
            said = f"the service has read {state.records:,} of {self._plan.records:,} records"
            state = ImportState(import_id, "failed", state.records, 1.0, said)
        self._records.note_outcome(attempt, state)
        if state.status == "failed":
            raise StopRunError(
                f"the import {import_id} into the store failed: {state.error}",
                code="import-failed",
                hint="when the reason is gone, run the same command again: what it has left is "
                "deleted, and another import is started",
            )
