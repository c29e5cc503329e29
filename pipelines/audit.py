"""Audit: compare source (on request), ledger and live store; repair on request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

from embedmill.assembly import Layers, build_parser, build_source, collection_spec, store_of
from embedmill.auditing import Auditor, Finding
from embedmill.errors import RefusedError
from embedmill.executor import InlineExecutor
from embedmill.own_collection import lost_collection, open_own_collection
from embedmill.plain_numbers import agreed, number_of
from embedmill.run_context import RunContext
from embedmill.settings import Settings
from embedmill.sharding import ShardPlan
from embedmill.source_audit import Drift, drifts
from pipelines.open_version import open_version
from pipelines.run_options import RunOptions

# Findings that are kept with all details; the rest is counted.
_EXAMPLES = 100


@dataclass(slots=True)
class AuditResult:
    """What an audit found.

    Attributes:
        version: that was audited.
        checked: records compared.
        counts: findings by kind.
        examples: the first of them.
        repaired: the findings about records were put right.
    """

    version: str
    checked: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: list[Finding | Drift] = field(default_factory=list)
    repaired: bool = False

    @property
    def clean(self) -> bool:
        """Nothing was found."""
        return not self.counts

    def take(self, findings: Iterable[Finding | Drift]) -> None:
        """Count findings."""
        for finding in findings:
            self.counts[finding.kind] += 1
            if len(self.examples) < _EXAMPLES:
                self.examples.append(finding)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        examples = [asdict(example) for example in self.examples]
        return {
            "version": self.version,
            "checked": self.checked,
            "counts": dict(self.counts),
            "examples": [{k: _plain(v) for k, v in example.items()} for example in examples],
            "repaired": self.repaired,
        }


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, int | str) else str(value)


def audit(
    settings: Settings,
    options: RunOptions,
    *,
    share: float = 1.0,
    repair: bool = False,
    with_source: bool = False,
) -> AuditResult:
    """Audit the version that an ingest would continue.

    Args:
        settings: of the index.
        options: of this run.
        share: of the records whose content is compared; ids are compared always.
        repair: write again what is missing or differs, delete what is foreign.
        with_source: compare the source with the ledger as well.

    Raises:
        RefusedError: an earlier run left work between the layers, or the store has another kind
            of collection, or none and nothing is to be repaired, or one that this index has not
            filled and that would be repaired.
        IndexLockedError: a run holds the index.
    """
    with open_version(settings, "audit", options) as version:
        execution = version.execution(InlineExecutor())
        with version.reported(execution):
            left = execution.prepare(fill=False)
            if left:
                raise RefusedError(
                    f"{number_of(left, 'segment')} {agreed(left, 'is', 'are')} not in the store "
                    "yet; there is nothing to compare with",
                    hint="run embedmill ingest SETTINGS to its end first",
                )
            result = _compared(settings, version.context, share=share, repair=repair)
            if with_source:
                chunks = Layers(version.context).chunks
                plan = ShardPlan(settings.shard_count)
                source, parser = build_source(settings), build_parser(settings)
                result.take(drifts(source, plan, chunks, parser))
            result.repaired = repair
        return result


def _compared(
    settings: Settings, context: RunContext, *, share: float, repair: bool
) -> AuditResult:
    """What the store has beside what the ledger says."""
    result, layers = AuditResult(context.version), Layers(context)
    store = store_of(settings)
    try:
        if repair:
            # Else the records of others would be foreign ones, and deleted.
            open_own_collection(context, layers, store, refill=True)
        elif context.collection not in store.collections():
            # To look is not to change: readers would find an empty one.
            raise lost_collection(context.collection)
        else:
            store.create_collection(context.collection, collection_spec(context.embedding))
        auditor = Auditor(layers.chunks, layers.vectors, layers.applied, store, context.collection)
        result.take(auditor.findings(share=share, repair=repair))
        result.checked = auditor.checked
    finally:
        store.close()
    return result
