"""The contract of a gate: what a version must show before readers are sent to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

Figure: TypeAlias = float | int | str
Verdict = Literal["passed", "failed", "not-applicable"]


@dataclass(frozen=True, slots=True)
class GateResult:
    """What one gate found.

    Attributes:
        name: of the gate; stable, for records and programs (``self-retrieval``).
        verdict: ``not-applicable`` where there is nothing to measure or to compare with; the
            message says what.
        figures: that were measured, by name.
        thresholds: that they were held against, by the names of the settings (``gates.NAME``).
        message: one line for a person: what was found and, where it failed, what to do next.
    """

    name: str
    verdict: Verdict
    figures: Mapping[str, Figure] = field(default_factory=dict)
    thresholds: Mapping[str, Figure] = field(default_factory=dict)
    message: str = ""

    @property
    def passed(self) -> bool:
        """Whether it lets the version through: nothing that was measured speaks against it."""
        return self.verdict != "failed"

    def to_json(self) -> dict[str, Any]:
        """For the manifest and for programs; ``passed`` included."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "passed": self.passed,
            "figures": dict(self.figures),
            "thresholds": dict(self.thresholds),
            "message": self.message,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote."""
        return cls(
            name=record["name"],
            verdict=record["verdict"],
            figures=dict(record["figures"]),
            thresholds=dict(record["thresholds"]),
            message=record["message"],
        )


def verdict(*, good: bool) -> Verdict:
    """The verdict of a gate that has measured."""
    return "passed" if good else "failed"


def failed_gates(results: Sequence[GateResult]) -> list[GateResult]:
    """The gates that speak against the version, in order."""
    return [result for result in results if not result.passed]
