"""Evaluate: hold one index version against all gates, from beginning to end; change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from embedmill.assembly import store_of, workspace_of
from embedmill.errors import AlreadyExistsError, RefusedError
from embedmill.evaluation_plot import evaluation_svg
from embedmill.gate import GateResult, failed_gates
from embedmill.gates.run import run_gates
from embedmill.lease import take_lease
from embedmill.manifest import Manifest
from embedmill.sealed_json import sealed
from embedmill.settings import Settings
from pipelines.run_options import RunOptions


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What the gates say of a version.

    Attributes:
        index: that the version is of.
        version: that was looked at (``v2``).
        against: the published version that it was compared with, or None.
        results: of all gates.
        time: UTC, ISO 8601.
    """

    index: str
    version: str
    against: str | None
    results: tuple[GateResult, ...]
    time: str

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
    options: RunOptions,
    *,
    version: int | None = None,
    on_gate: Callable[[str], None] = lambda _: None,
) -> Evaluation:
    """Run all gates on one version, and keep what they say in the workspace.

    Args:
        settings: of the index; ``settings.gates`` has the thresholds.
        options: of this run.
        version: its number; without it the newest, which is compared with the published one.
        on_gate: told the name of each gate before it is run.

    Raises:
        RefusedError: there is no such version.
        IndexLockedError: a run holds the index.
    """
    workspace = workspace_of(settings)
    state = Manifest(workspace, settings.index).read()
    if not state.versions:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet", hint="run embedmill ingest first"
        )
    candidate = state.versions[-1] if version is None else state.version(version)
    rival = state.published
    if rival is not None and rival.number == candidate.number:
        rival = None
    with take_lease(
        workspace,
        settings.index,
        "evaluate",
        take_over=options.take_over,
        sleep=options.sleep,
    ):
        store = store_of(settings)
        try:
            results = run_gates(settings, candidate, rival, store, on_gate=on_gate)
        finally:
            store.close()
    now = datetime.now(UTC).replace(microsecond=0)
    against = None if rival is None else rival.name
    found = Evaluation(settings.index, candidate.name, against, results, now.isoformat())
    place = f"indexes/{settings.index}/evaluations/{candidate.name}-{now:%Y%m%dT%H%M%SZ}"
    for ending, data in ((".json", sealed(found.to_json())), (".svg", found.svg().encode())):
        try:
            workspace.create(place + ending, data)
        except AlreadyExistsError:
            # Two evaluations in one second say the same.
            continue
    return found
