"""Commands about the versions of an index: what there is, and where it comes from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Annotated

import typer

from embedmill.assembly import workspace_of
from embedmill.errors import RefusedError
from embedmill.gate import GateResult
from embedmill.job_summary import bill
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.plain_numbers import number_of
from embedmill.provenance import ChunkOrigin, Provenance
from embedmill.run_report import RunReport, read_reports
from embedmill.settings import Settings
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    out,
    print_lines,
    reports_errors,
    settings_from,
    to_type,
    version_number,
)
from pipelines.cli_reading import print_json

# Runs shown without being asked for all.
_FEW_RUNS = 20

app = typer.Typer(
    help="Versions of an index: recipe, counts, state. Without a command: all of them."
)


@app.callback(invoke_without_command=True)
@reports_errors
def versions(
    context: typer.Context,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the versions of an index: recipe, counts, state."""
    if context.invoked_subcommand is not None:
        return
    settings = settings_from(config, overrides, index)
    state = Manifest(workspace_of(settings), settings.index).read()
    if as_json:
        print_json([asdict(version) for version in state.versions])
        return
    if not state.versions:
        out.say(f"index {settings.index!r} has no versions yet")
        return
    for version in state.versions:
        print_lines(version_lines(version))


def version_lines(version: IndexVersion) -> Iterator[str]:
    """A version for a person."""
    counts = version.counts
    known = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in counts.items())
    chunking, embedding = version.chunking, version.embedding
    yield f"{version.name}  {version.state}  {known or 'not complete yet'}"
    yield f"    created     {version.created}, published {version.published or 'never'}"
    if version.retired or version.pruned:
        gone = f", its data deleted {version.pruned}" if version.pruned else ""
        yield f"    retired     {version.retired or 'never'}{gone}"
    yield f"    last run    {version.last_run or 'none that ended well'}"
    yield (
        f"    chunks by   {chunking.id}: {chunking.splitter}, at most {chunking.max_tokens} "
        f"tokens, overlap {chunking.overlap}{chunking.library and f', {chunking.library}'}"
    )
    yield (
        f"    vectors by  {embedding.id}: {embedding.model} ({embedding.revision}), "
        f"{embedding.dimension} dimensions, {embedding.dtype}, {embedding.metric}"
    )
    prompts = f"document {embedding.document_prompt!r}, query {embedding.query_prompt!r}"
    yield f"    prompts     {prompts}"
    yield f"    collection  {version.collection}, {number_of(version.shard_count, 'shard')}"


@app.command()
@reports_errors
def show(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="3, or v3.")],
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one version whole: recipe, history, runs, embedding jobs with their cost, gates."""
    settings = settings_from(config, overrides, index)
    workspace = workspace_of(settings)
    number = version_number(version)
    assert number is not None
    found = Manifest(workspace, settings.index).read().version(number)
    runs = [
        report for _, report in read_reports(workspace, settings.index) if _is_of(report, found)
    ]
    if as_json:
        print_json({**asdict(found), "runs": [report.to_json() for report in runs if report]})
        return
    print_lines(version_lines(found))
    if found.parent is not None:
        out.say(f"    begun beside v{found.parent}")
    print_lines(_history_lines(found))
    print_lines(_run_lines([report for report in runs if report is not None]))
    print_lines(_job_lines(found))
    print_lines(map(to_type, _gate_lines(found)))


def _is_of(report: RunReport | None, version: IndexVersion) -> bool:
    return report is not None and report.version == version.name


def _history_lines(version: IndexVersion) -> Iterator[str]:
    yield "history" if version.history else "history: none recorded"
    for line in version.history:
        run = f", run {line['run']}" if line.get("run") else ""
        yield f"    {line['at']}  {line['event']:<12} by {line['by']}{run}"


def _run_lines(reports: Sequence[RunReport]) -> Iterator[str]:
    yield f"runs: {len(reports):,}, the newest first" if reports else "runs: none with a report"
    for report in reports[:_FEW_RUNS]:
        chunks = report.chunks
        yield (
            f"    {report.run}  {report.pipeline:<8} {report.status:<11} {chunks.embedded:>9,} "
            f"embedded, {chunks.reused + chunks.deduplicated:,} taken over"
        )
    if len(reports) > _FEW_RUNS:
        yield f"    and {len(reports) - _FEW_RUNS:,} more (--json shows all)"


def _job_lines(version: IndexVersion) -> Iterator[str]:
    jobs = [dict(job) for job in version.jobs]
    if not jobs:
        yield "embedding jobs: none"
        return
    yield f"embedding jobs: {bill(jobs)}"
    for job in jobs:
        cost = "unknown" if job["dollars"] is None else f"${job['dollars']:.4f}"
        yield (
            f"    {job['key']}  {job['status']:<10} {job['rows']:>8,} rows  cost {cost}  "
            f"{job['provider']} {job['provider_job']}"
        )


def _gate_lines(version: IndexVersion) -> Iterator[str]:
    yield "gates" if version.gates else "gates: none were asked"
    for record in version.gates:
        gate = GateResult.from_json(record)
        yield f"    {gate.name:<16} {gate.verdict:<15} {gate.message}"


@reports_errors
def why(
    doc_id: Annotated[str, typer.Argument(help="Id of a document.")],
    chunk: Annotated[int | None, typer.Argument(min=0, help="Number of a chunk, from 0.")] = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    version: Annotated[
        str | None, typer.Option("--version", help="Only this version; without it all with data.")
    ] = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show where the records of a document come from: segment, vector, embedding job, run."""
    settings = settings_from(config, overrides, index)
    workspace = workspace_of(settings)
    state = Manifest(workspace, settings.index).read()
    number = version_number(version)
    chosen = [v for v in state.versions if not v.pruned]
    if number is not None:
        chosen = [state.version(number)]
    found: dict[str, Sequence[ChunkOrigin]] = {}
    missing: dict[int, RefusedError] = {}
    for one in chosen:
        try:
            found[one.name] = Provenance(workspace, settings.index, one).of(doc_id, chunk)
        except RefusedError as error:
            missing[one.number] = error
    if not found:
        raise _nowhere(settings, state, missing)
    if as_json:
        print_json({name: [asdict(one) for one in origins] for name, origins in found.items()})
        return
    for name, origins in found.items():
        print_lines(_origin_lines(f"{name} {state.version(int(name[1:])).state}", origins))
    print_lines(str(error) for error in missing.values())


def _nowhere(
    settings: Settings, state: ManifestState, missing: dict[int, RefusedError]
) -> RefusedError:
    """What to say when no version has it: what is true of the one that readers see."""
    if not missing:
        return RefusedError(
            f"index {settings.index!r} has no versions with data",
            hint="run embedmill ingest SETTINGS first",
        )
    seen = state.published.number if state.published else 0
    return missing.get(seen, missing[max(missing)])


def _origin_lines(title: str, origins: Sequence[ChunkOrigin]) -> Iterator[str]:
    yield title if origins else f"{title}: the document has no text, and no records"
    for one in origins:
        made = f", made in {one.made_in}" if one.made_in else ""
        job = f", embedding job {one.job} ({one.provider_job or 'no id'})" if one.job else ""
        place = f"segment {one.segment} row {one.row}"
        yield f"    chunk {one.chunk_index}  record {one.record}, {place}"
        yield f"        vector {one.vector}{made}{job}"
        made_by = [
            f"{what} by run {run}"
            for what, run in (("cut", one.chunked_by), ("embedded", one.embedded_by))
            if run
        ]
        if made_by:
            yield f"        {', '.join(made_by)}"
        if one.run:
            yield f"        stored by run {one.run}, {one.time}"
        if one.note:
            yield f"        {one.note}"
