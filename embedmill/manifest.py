"""The manifest: the log of index versions, one immutable numbered file per commit.

The newest file is the truth; it holds all versions. Committing means creating the next number, and
losing that race means that somebody else was first.

Without its newest file a log looks like one that is a step shorter. So each commit also leaves a
copy of itself elsewhere, which tells that there was one, and what it said.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from embedmill.errors import (
    DamagedFileError,
    ManifestConflictError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.sealed_json import newer_format, require_known, sealed, unsealed
from embedmill.workspace import Workspace, create_once, require

log = logging.getLogger(__name__)
VersionState = Literal["building", "ready", "published", "retired", "failed"]
FORMAT = "1"
# Others commit between our reading and our commit; that many times in a row is no accident.
_TRIES = 50


@dataclass(frozen=True, slots=True)
class IndexVersion:
    """One build of an index.

    Attributes:
        number: from 1, never used again.
        state: where it is in its life.
        chunking: its chunking recipe.
        embedding: its embedding recipe.
        collection: where its records live.
        shard_count: fixed for the life of the index.
        created: UTC, ISO 8601.
        counts: of the last run that changed it (documents, chunks, records, dead letters).
        last_run: that changed it.
        published: when readers were sent to it, or None.
        jobs: embedding jobs that made its vectors: provider's id, rows, tokens, cost, times.
        parent: number of the version that was published when this one was begun.
        retired: when readers were sent elsewhere, or it was given up.
        pruned: when its records and vectors were deleted; it cannot be published any more.
        gates: what it showed before it was published, as ``GateResult.to_json`` writes it.
        history: what happened to it, oldest first: ``event``, ``at``, ``by`` and ``run``.
    """

    number: int
    state: VersionState
    chunking: ChunkingRecipe
    embedding: EmbeddingRecipe
    collection: str
    shard_count: int
    created: str
    counts: Mapping[str, int] = field(default_factory=dict)
    last_run: str = ""
    published: str | None = None
    jobs: Sequence[Mapping[str, Any]] = ()
    parent: int | None = None
    retired: str | None = None
    pruned: str | None = None
    gates: Sequence[Mapping[str, Any]] = ()
    history: Sequence[Mapping[str, str]] = ()

    @property
    def name(self) -> str:
        """``v3``."""
        return f"v{self.number}"

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Read what :func:`dataclasses.asdict` wrote."""
        return cls(
            **{
                **record,
                "chunking": ChunkingRecipe.from_json(record["chunking"]),
                "embedding": EmbeddingRecipe.from_json(record["embedding"]),
                **{name: tuple(record.get(name, ())) for name in ("jobs", "gates", "history")},
            }
        )

    def noted(self, event: str, *, at: str, by: str, run: str = "") -> Self:
        """This version with one more line of history.

        Args:
            event: short stable word (``published``).
            at: UTC, ISO 8601.
            by: who did it (see ``embedmill.run_context.who``).
            run: in which run.
        """
        line = {"event": event, "at": at, "by": by, "run": run}
        return replace(self, history=(*self.history, line))


@dataclass(frozen=True, slots=True)
class ManifestState:
    """What one manifest file says.

    Attributes:
        number: of the file; 0 when there is none yet.
        versions: ascending by number.
    """

    number: int
    versions: tuple[IndexVersion, ...]

    @property
    def published(self) -> IndexVersion | None:
        """The version that readers see, or None."""
        return next((v for v in self.versions if v.state == "published"), None)

    @property
    def newest(self) -> IndexVersion | None:
        """The version with the highest number, or None."""
        return self.versions[-1] if self.versions else None

    @property
    def current(self) -> IndexVersion | None:
        """The version that an ingest goes on with: the published one, else the newest in work."""
        in_work = [v for v in self.versions if v.state in {"building", "ready"}]
        return self.published or (in_work[-1] if in_work else None)

    @property
    def next_number(self) -> int:
        """Of the version that comes next; numbers are never used again."""
        return self.versions[-1].number + 1 if self.versions else 1

    def version(self, number: int) -> IndexVersion:
        """One version.

        Raises:
            RefusedError: there is no such version; the message lists those there are.
        """
        for version in self.versions:
            if version.number == number:
                return version
        known = ", ".join(v.name for v in self.versions)
        if not known:
            raise RefusedError(
                f"there is no version v{number}: the index has none yet",
                hint="run embedmill ingest SETTINGS first",
            )
        raise RefusedError(f"there is no version v{number}; there are: {known}")


class Manifest:
    """The manifest of one index."""

    def __init__(self, workspace: Workspace, index: str) -> None:
        self._workspace = workspace
        self._folder = f"indexes/{index}/manifest"
        self._copy_path = f"indexes/{index}/manifest-copy.json"
        self._told = 0

    def read(self) -> ManifestState:
        """The newest state, also where the newest file is lost, or is not listed yet.

        Raises:
            DamagedFileError: the newest file is torn, and the copy does not have what it said.
            NewerFormatError: a newer embedmill wrote it.
        """
        copy = self._copy()
        listed = [
            int(match.group(1))
            for entry in self._workspace.list(self._folder)
            if (match := re.search(r"(?:^|/)(\d{8})\.json$", entry.path))
        ]
        number = max([*listed, copy.get("number", 0)], default=0)
        if not number:
            return ManifestState(0, ())
        path = self._path(number)
        try:
            body = unsealed(require(self._workspace, path), path)
        except DamagedFileError as error:
            if copy.get("number") != number:
                raise
            self._tell(number, error)
            body = copy
        if body["format"] != FORMAT:
            raise newer_format(path, f"format {body['format']}")
        for record in body["versions"]:
            require_known(IndexVersion, record, path)
        versions = tuple(IndexVersion.from_json(record) for record in body["versions"])
        return ManifestState(number, versions)

    def _copy(self) -> dict[str, Any]:
        """The body of the newest file that was copied; empty when there is none."""
        data = self._workspace.read(self._copy_path)
        try:
            return {} if data is None else unsealed(data, self._copy_path)
        except DamagedFileError as error:
            log.warning("%s; the next commit makes it again", error)
            return {}

    def _tell(self, number: int, error: DamagedFileError) -> None:
        # A reader comes here every few seconds.
        if self._told != number:
            self._told = number
            log.warning(
                "%s; what it said is taken from %s, nothing is lost", error, self._copy_path
            )

    def commit(self, version: IndexVersion, expected_parent: ManifestState) -> ManifestState:
        """Add or replace one version on top of the state that the caller has read.

        Publishing a version retires the one that was published, in the same commit.

        Raises:
            ManifestConflictError: another process has committed since.
        """
        others = [
            _retired(v, version) if version.state == "published" else v
            for v in expected_parent.versions
            if v.number != version.number
        ]
        versions = tuple(sorted([*others, version], key=lambda v: v.number))
        number = expected_parent.number + 1
        data = sealed(
            {"format": FORMAT, "number": number, "versions": [asdict(v) for v in versions]}
        )
        if not create_once(self._workspace, self._path(number), data):
            raise ManifestConflictError(
                f"another process has committed number {number} to the manifest of this index",
                hint="run the same command again",
            )
        try:
            # Of two at once the earlier commit may come last: then the copy is a step behind.
            self._workspace.replace(self._copy_path, data)
        except (StopRunError, TransientError) as error:
            # It is committed.
            log.warning("the manifest's copy was not written: %s", error)
        return ManifestState(number, versions)

    def update(
        self, change: Callable[[ManifestState], IndexVersion | None]
    ) -> tuple[ManifestState, ManifestState]:
        """Change one version, whatever others commit meanwhile.

        Args:
            change: makes the new entry from the newest state; called again when somebody was
                faster. With None, or an entry that is as it was, nothing is committed.

        Returns:
            The state before and after.

        Raises:
            ManifestConflictError: somebody was faster every time.
            EmbedmillError: what ``change`` raises.
        """
        for attempt in range(1, _TRIES + 1):
            state = self.read()
            version = change(state)
            if version is None or version in state.versions:
                return state, state
            try:
                return state, self.commit(version, state)
            except ManifestConflictError:
                if attempt == _TRIES:
                    raise
        raise AssertionError

    def amend(self, number: int, change: Callable[[IndexVersion], IndexVersion]) -> ManifestState:
        """Change what the newest state says of a version; see :meth:`update`.

        Raises:
            RefusedError: there is no such version.
        """
        return self.update(lambda state: change(state.version(number)))[1]

    def _path(self, number: int) -> str:
        return f"{self._folder}/{number:08d}.json"


def _retired(version: IndexVersion, successor: IndexVersion) -> IndexVersion:
    if version.state != "published":
        return version
    retired = replace(version, state="retired", retired=successor.published)
    if not successor.history:
        return retired
    line = successor.history[-1]
    event = "rolled-back" if line["event"] == "restored" else "retired"
    return replace(retired, history=(*version.history, {**line, "event": event}))
