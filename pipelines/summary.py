"""The summary of a run, for a person."""

from __future__ import annotations

from collections.abc import Iterator

from embedmill.counts import DocumentCounts, RateUse, WriteCounts
from embedmill.job_summary import bill, unneeded_line, waiting_line
from embedmill.plain_numbers import agreed, number_of
from embedmill.run_report import RunReport
from embedmill.stated_limits import StatedLimits

# Runs that fill the index; the others move readers, delete, compare or write elsewhere.
_FILLING = {"ingest", "replay", "reembed"}


_EARLY = {"failed", "interrupted"}
_SAME = "run the same command"


def fills(report: RunReport) -> bool:
    """Whether the counts of documents, chunks and records are what the run is about."""
    return report.pipeline in _FILLING


def summary(report: RunReport) -> Iterator[str]:
    """Lines that say what a run did, so that every number can be added up."""
    if report.pipeline == "copy":
        yield from copied(report, "another store")
        return
    if not fills(report):
        # What is pruned is not the version that is published meanwhile.
        of = "" if report.pipeline == "prune" else f" of {report.version}"
        what = f"{report.pipeline}{of}"
        ended = f": {report.error}" if report.error else ""
        yield f"run        {report.run}, {what}: {report.status}{ended}"
        return
    yield from _counted(report)


def _counted(report: RunReport) -> Iterator[str]:
    documents, chunks, records = report.documents, report.chunks, report.records
    extra = [
        f"; {count:,} {what}"
        for count, what in ((documents.removed, "removed"), (documents.empty, "without text"))
        if count
    ]
    if documents.withheld:
        extra.append(f"; {_kept(documents)}")
    if documents.recognised:
        extra.append(f"; {_unread(report)}")
    early = report.status in _EARLY and documents.read and report.live_documents < 0
    if early and not documents.withheld:
        extra.append("; it ended early: those that are not committed are read again")
    # A version that is built from stored chunks reads none.
    if documents.read or report.pipeline != "reembed":
        yield _documents(documents, "".join(extra))
    gone = f" + {chunks.superseded:,} superseded" if chunks.superseded else ""
    cut = f"; {chunks.truncated:,} cut at the model's window" if chunks.truncated else ""
    yield (
        f"chunks     {chunks.chunks:,} = {chunks.embedded:,} embedded + {chunks.reused:,} reused "
        f"+ {chunks.deduplicated:,} deduplicated + {chunks.dead:,} dead{gone}{cut}"
    )
    yield (
        f"records    {records.upserted:,} written, {records.deleted:,} deleted, "
        f"{records.rejected:,} refused"
        + (f"; {number_of(records.partial, 'document')} partly stored" if records.partial else "")
    )
    if report.rate.requests:
        yield f"requests   {_used(report.rate)}"
    if report.writes.requests:
        yield f"writes     {_told(report.writes)}"
    yield from _jobs(report)
    if report.stored_records >= 0:
        yield f"index      {_standing(report)}"
    yield from _gates(report)
    where = "over Ray" if report.executor == "ray" else "in this process"
    yield f"run        {report.run}, {report.seconds:.1f} s {where}: {verdict(report)}"


def _jobs(report: RunReport) -> Iterator[str]:
    """Embedding jobs that have ended, that are waited for, and that are open in vain."""
    if report.jobs:
        yield f"jobs       {bill(report.jobs)} (see: embedmill jobs list -c SETTINGS)"
    if report.open_jobs:
        yield f"waiting    {waiting_line(report.open_jobs)}"
    if report.unneeded_jobs:
        yield f"unneeded   {unneeded_line(report.unneeded_jobs)}"


def _documents(documents: DocumentCounts, extra: str) -> str:
    # Of those that are known by their entity tags "read" would not be true.
    met = "listed" if documents.recognised else "read"
    return (
        f"documents  {documents.read:,} {met} = {documents.added:,} added + "
        f"{documents.changed:,} changed + {documents.unchanged:,} unchanged + "
        f"{documents.dead:,} dead{extra}"
    )


def _kept(documents: DocumentCounts) -> str:
    """What should be gone, and why it is not; a refusal is told with the verdict."""
    rows = documents.unidentified
    why = f", since no id could be read of {number_of(rows, 'row')}" if rows else ""
    return f"{documents.withheld:,} gone but kept{why}"


def _unread(report: RunReport) -> str:
    """How much did not have to be read, and how much was."""
    recognised = report.documents.recognised
    others = report.documents.read - recognised
    size = report.read_bytes
    amount = f"{size:,} bytes" if size < 2**20 else f"{size / 2**20:,.1f} MiB"
    read = f"{others:,} of them read ({amount})" if others else "none of them read"
    return f"{read}, {recognised:,} listed as before"


def _standing(report: RunReport) -> str:
    """What the version holds now."""
    documents = report.live_documents
    return (
        f"{report.index} {report.version}: {number_of(report.live_records, 'record')} applied = "
        f"{report.stored_records:,} in the store"
        + (f", {number_of(documents, 'document')}" if documents >= 0 else "")
        + (f"; {_lacking(report)}" if report.lacking_records > 0 else "")
    )


def _lacking(report: RunReport) -> str:
    lacking = report.lacking_records
    return f"{number_of(lacking, 'chunk')} {agreed(lacking, 'has', 'have')} no record"


def _gates(report: RunReport) -> Iterator[str]:
    """What the first version of an index showed."""
    if not report.gates:
        return
    poor = [gate for gate in report.gates if not gate["passed"]]
    speak = agreed(len(poor), "speaks", "speak")
    said = f"{len(poor)} of {len(report.gates)} {speak}" if poor else "nothing speaks"
    yield f"gates      {said} against {report.version}, the first version of the index"
    for gate in poor:
        yield f"           {gate['name']}: {gate['message']}"


def _used(rate: RateUse) -> str:
    price = f", ${rate.dollars:,.4f}" if rate.dollars else ""
    stated = StatedLimits(rate.stated_requests, rate.stated_tokens)
    kept = f"; kept to what the provider allows: {stated}" if str(stated) else ""
    return (
        f"{rate.requests:,} in realtime, {rate.throttled:,} refused for the rate, "
        f"{number_of(rate.tokens, 'token')}{price}; {rate.waited_s:,.1f} s waited for the rate "
        f"budget{kept}"
    )


def _told(writes: WriteCounts) -> str:
    troubles = [
        f"{count:,} {what}"
        for count, what in (
            (writes.rate_limited, "too many at once"),
            (writes.transient - writes.rate_limited, "refused for the moment"),
            (writes.unknown, "without a reply"),
        )
        if count
    ]
    said = f"{number_of(writes.requests, 'request')} to the store"
    if troubles:
        said += f", of them {' + '.join(troubles)}"
    if writes.halvings:
        said += (
            f"; slowed down {number_of(writes.halvings, 'time')}, waited {writes.waited_s:.1f} s"
        )
    return said


def copied(report: RunReport, where: str) -> Iterator[str]:
    """Lines that say what a copy did."""
    records = report.records
    yield (
        f"records    {records.upserted:,} written, {records.deleted:,} deleted, "
        f"{records.rejected:,} refused"
    )
    if report.writes.requests:
        yield f"writes     {_told(report.writes)}"
    if report.stored_records >= 0:
        yield (
            f"copy       {report.index} {report.version}: "
            f"{number_of(report.stored_records, 'record')} in {where}, compared one by one"
        )
    yield f"run        {report.run}, {report.seconds:.1f} s: {_verdict_of_copy(report)}"


def _verdict_of_copy(report: RunReport) -> str:
    if report.status == "partial":
        return "completed; some records were refused there, see the log above"
    if report.status == "succeeded" and not report.changed_anything:
        return "nothing to do, the copy is in line with the index"
    return report.status if not report.error else f"{report.status}: {report.error}"


def verdict(report: RunReport) -> str:
    """One phrase that says how it went."""
    if report.status == "waiting":
        # A replay that is run again would send the same documents on their way once more.
        how = "run embedmill ingest SETTINGS" if report.pipeline == "replay" else _SAME
        return f"embedding jobs go on at the provider; {how} later to collect them"
    if report.status == "partial":
        see = "(see: embedmill dlq list -c SETTINGS)"
        if report.dead_letters:
            return f"completed with {number_of(report.dead_letters, 'dead letter')} {see}"
        done = "completed" if report.changed_anything else "nothing to do"
        return f"{done}, but {_lacking(report)} since an earlier run {see}"
    if report.status == "succeeded" and not report.changed_anything:
        at_all = ", the index is in line with its source" if report.pipeline == "ingest" else ""
        return f"nothing to do{at_all}"
    return report.status if not report.error else f"{report.status}: {report.error}"
