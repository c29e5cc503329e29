"""The command ``embedmill audit``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from embedmill.plain_numbers import number_of
from pipelines.audit import AuditResult, audit
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    FINDINGS,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    VerboseOption,
    configure_logging,
    out,
    reports_errors,
    settings_from,
    to_type,
)
from pipelines.cli_reading import print_json
from pipelines.cli_running import TakeOverOption
from pipelines.run_options import RunOptions

_MEANING = {
    "missing": "the store lacks a record that the ledger has",
    "stale": "a record with other content than the ledger's chunk",
    "other-vector": "a record with another vector than the vectors layer's",
    "orphaned": "a record of no document in the ledger",
    "duplicate": "a second record of a chunk, under a foreign id",
    "damaged-file": "a file of the workspace is not what was committed",
    "not-ingested": "a document of the source that the index lacks",
    "changed-at-source": "a document that changed since it was ingested",
    "gone-from-source": "a document that the source no longer has",
}
_BY_INGEST = {"not-ingested", "changed-at-source", "gone-from-source"}
_BY_HAND = {"damaged-file"}
_SHOWN = 10


@reports_errors
def audit_command(
    config: ConfigOption = DEFAULT_CONFIG,
    *,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Write again what is missing or differs, delete what is foreign."
        ),
    ] = False,
    share: Annotated[
        float,
        typer.Option(
            "--share", min=0.0, max=1.0, help="Compare contents of this share; ids always."
        ),
    ] = 1.0,
    with_source: Annotated[
        bool, typer.Option("--with-source", help="Compare the source with the index as well.")
    ] = False,
    index: IndexOption = None,
    overrides: SetOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Compare ledger and store, record by record; nothing is embedded. Exit status 7: findings."""
    configure_logging(verbose=verbose)
    settings = settings_from(config, overrides, index)
    options = RunOptions(take_over=take_over)
    result = audit(settings, options, share=share, repair=repair, with_source=with_source)
    after = audit(settings, options, share=share) if repair and not result.clean else None
    if as_json:
        print_json({**result.to_json(), "after_repair": after and after.to_json()})
    else:
        _print(result, after)
    left = {kind for kind in result.counts if kind in _BY_INGEST} if after else set(result.counts)
    raise typer.Exit(FINDINGS if left or (after is not None and not after.clean) else 0)


def _print(result: AuditResult, after: AuditResult | None) -> None:
    out.say(f"{result.version}: {number_of(result.checked, 'record')} compared")
    if result.clean:
        out.print("no findings: the store holds what the ledger says")
        return
    table = Table(box=None, show_header=False, padding=(0, 1))
    for kind, count in result.counts.most_common():
        table.add_row(f"{count:,}", kind, _MEANING[kind])
    out.print(table, highlight=False)
    for example in result.examples[:_SHOWN]:
        place = getattr(example, "chunk_index", -1)
        where = f"{example.doc_id} chunk {place}  " if place >= 0 else f"{example.doc_id}  "
        detail = getattr(example, "detail", "") or getattr(example, "uri", "")
        # What is damaged by hand is mended by hand: the detail has a command.
        detail = to_type(detail) if example.kind in _BY_HAND else detail
        out.say(f"  {example.kind}: {where.lstrip()}{detail}".rstrip())
    if after is not None:
        left = ", ".join(f"{count:,} {kind}" for kind, count in after.counts.most_common())
        state = f"{left} left" if left else "clean"
        out.say(f"repaired, and audited again: {state}")
    elif set(result.counts) - _BY_INGEST - _BY_HAND:
        out.print("next: the same command with --repair; nothing is embedded for it")
    if set(result.counts) & _BY_INGEST:
        out.say(to_type("next: embedmill ingest SETTINGS brings the index in line with its source"))
