"""Evaluate: hold one index version against all gates, from beginning to end; change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from embedmill.applied_layer import AppliedLayer
from embedmill.assembly import store_of, workspace_of
from embedmill.errors import AlreadyExistsError, DamagedFileError, RefusedError, TransientError
from embedmill.evaluation_plot import evaluation_svg
from embedmill.gate import GateResult, failed_gates
from embedmill.gates.run import run_gates
from embedmill.lease import in_use_by
from embedmill.manifest import IndexVersion, Manifest
from embedmill.publishing import require_publishable
from embedmill.sealed_json import sealed
from embedmill.segment import ChunkLayer
from embedmill.settings import Settings
from embedmill.workspace import Workspace

# So often it looks again when a run has written to what it looked at.
_TRIES = 3


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the gates say of a version.

    Attributes:
        index: that the version is of.
        version: that was looked at (``v2``).
        against: the published version that it was compared with, or None.
        results: of all gates.
        time: UTC, ISO 8601.
        beside: who works on the index at the same time, "" when nobody does.
    """

    index: str
    version: str
    against: str | None
    results: tuple[GateResult, ...]
    time: str
    beside: str = ""

    @property
    def passed(self) -> bool:
        """Whether the version is fit to be published."""
        return not failed_gates(self.results)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "index": self.index,
            "version": self.version,
            "against": self.against,
            "passed": self.passed,
            "time": self.time,
            "gates": [result.to_json() for result in self.results],
        }

    def svg(self) -> str:
        """As a picture."""
        title = f"{self.index} {self.version}"
        if self.against is not None:
            title += f" against {self.against}"
        return evaluation_svg(title, self.results, self.against)


def evaluate(
    settings: Settings,
    *,
    version: int | None = None,
    on_gate: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Run all gates on one version, and keep what they say in the workspace.

    It only reads: runs and builds go on meanwhile. Where one of them writes to the version while it
    is looked at, so that its books do not agree, it is looked at again.

    Args:
        settings: of the index; ``settings.gates`` has the thresholds.
        version: its number; without it the newest, which is compared with the published one.
        on_gate: told the name of each gate before it is run.

    Raises:
        RefusedError: there is no such version.
        TransientError: a run writes to it all the time, and what was seen speaks against it.
        IndexLockedError: a run holds the embedded store, which has one owner at a time.
    """
    workspace = workspace_of(settings)
    state = Manifest(workspace, settings.index).read()
    if not state.versions:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet",
            hint="run embedmill ingest SETTINGS first",
        )
    candidate = state.versions[-1] if version is None else state.version(version)
    rival = state.published
    if rival is not None and rival.number == candidate.number:
        rival = None
    if candidate.state in {"building", "failed"} or candidate.pruned:
        require_publishable(candidate)
    results = _results(settings, workspace, candidate, rival, on_gate)
    beside = in_use_by(workspace, settings.index)
    now = datetime.now(UTC).replace(microsecond=0)
    against = None if rival is None else rival.name
    found = Evaluation(settings.index, candidate.name, against, results, now.isoformat(), beside)
    place = f"indexes/{settings.index}/evaluations/{candidate.name}-{now:%Y%m%dT%H%M%SZ}"
    for ending, data in ((".json", sealed(found.to_json())), (".svg", found.svg().encode())):
        try:
            workspace.create(place + ending, data)
        except AlreadyExistsError:
            # Two evaluations in one second say the same.
            continue
    return found


def _results(
    settings: Settings,
    workspace: Workspace,
    candidate: IndexVersion,
    rival: IndexVersion | None,
    on_gate: Callable[[str], None],
) -> tuple[GateResult, ...]:
    """What the gates say of a version that nobody wrote to meanwhile, or that passed all the same.

    Raises:
        TransientError: somebody did, every time.
    """
    for _ in range(_TRIES):
        before = _written(settings, workspace, candidate)
        store = store_of(settings)
        try:
            results = run_gates(settings, candidate, rival, store, on_gate=on_gate)
        except DamagedFileError:
            # Files that a compaction has replaced are gone.
            if _written(settings, workspace, candidate) == before:
                raise
            continue
        finally:
            store.close()
        if not failed_gates(results) or _written(settings, workspace, candidate) == before:
            return results
    raise TransientError(
        f"a run writes to {candidate.name} all the time; what was seen of it is neither before nor "
        "after",
        hint="evaluate it when no run goes on",
    )


def _written(settings: Settings, workspace: Workspace, version: IndexVersion) -> object:
    """What runs have added to a version: it differs when one of them has written meanwhile."""
    index = settings.index
    return (
        ChunkLayer(workspace, index, version.chunking.id).committed(),
        AppliedLayer(workspace, index, version.collection).committed(),
    )
