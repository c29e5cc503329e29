"""The summary of a run, for a person."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from embedmill.run_report import RunReport


def print_summary(console: Console, report: RunReport) -> None:
    """Print what a run did, so that every number can be added up."""
    documents, chunks, records = report.documents, report.chunks, report.records
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(justify="left", style="bold")
    table.add_column()
    table.add_row(
        "documents",
        f"{documents.read:,} read = {documents.added:,} added + {documents.changed:,} changed + "
        f"{documents.unchanged:,} unchanged + {documents.dead:,} dead"
        + (f"; {documents.removed:,} removed" if documents.removed else "")
        + (f"; {documents.empty:,} without text" if documents.empty else ""),
    )
    table.add_row(
        "chunks",
        f"{chunks.chunks:,} = {chunks.embedded:,} embedded + {chunks.reused:,} reused + "
        f"{chunks.deduplicated:,} deduplicated + {chunks.dead:,} dead"
        + (f"; {chunks.truncated:,} cut at the model's window" if chunks.truncated else ""),
    )
    table.add_row(
        "records",
        f"{records.upserted:,} written, {records.deleted:,} deleted, {records.rejected:,} refused",
    )
    if report.stored_records >= 0:
        documents_live = (
            f" of {report.live_documents:,} documents" if report.live_documents >= 0 else ""
        )
        table.add_row(
            "index",
            f"{report.index} {report.version}: {report.live_records:,} records applied = "
            f"{report.stored_records:,} in the store{documents_live}",
        )
    table.add_row("run", f"{report.run}, {report.seconds:.1f} s, {verdict(report)}")
    console.print(table, highlight=False, soft_wrap=True)


def verdict(report: RunReport) -> str:
    """One phrase that says how it went."""
    if report.status == "partial":
        return f"completed with {report.dead_letters:,} dead letters (embedmill dlq list)"
    if report.status == "succeeded" and not report.changed_anything:
        return "nothing to do: the index is in line with its source"
    return report.status if not report.error else f"{report.status}: {report.error}"
