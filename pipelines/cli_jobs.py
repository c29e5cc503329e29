"""Commands about embedding jobs."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

import typer

from embedmill.assembly import recipes_of, workspace_of
from embedmill.batch_provider import BatchEmbeddingProvider, JobHandle
from embedmill.errors import RefusedError
from embedmill.job_assembly import build_provider, open_jobs, price_per_million
from embedmill.job_cancelling import cancel_job, give_up_job
from embedmill.job_records import JobRecord, JobRecords
from embedmill.job_summary import status_of, summary_of, unneeded_line
from embedmill.lease import Lease, LeaseName, take_lease
from embedmill.manifest import IndexVersion, Manifest
from embedmill.settings import Settings
from embedmill.versioning import recipe_changes
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
)
from pipelines.cli_reading import print_json

app = typer.Typer(
    no_args_is_help=True, help="Embedding jobs: what is at the provider, what it cost."
)
KeyArgument = Annotated[str, typer.Argument(help="Key of a job, from: embedmill jobs list")]


def _version(settings: Settings) -> IndexVersion:
    """The version with the settings' recipe, built or published; else the newest."""
    state = Manifest(workspace_of(settings), settings.index).read()
    wanted = recipes_of(settings)
    meant = [one for one in state.versions if not recipe_changes(settings, one, wanted)]
    version = meant[-1] if meant else state.newest
    if version is None:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet",
            hint="run embedmill ingest SETTINGS first",
        )
    return version


def _held(settings: Settings, purpose: str) -> Lease:
    """The lease of whoever has the version's jobs: a sync, or a build beside it."""
    workspace = workspace_of(settings)
    current = Manifest(workspace, settings.index).read().current
    synced = current is not None and current.number == _version(settings).number
    name: LeaseName = "lease" if synced else "build-lease"
    return take_lease(workspace, settings.index, purpose, name=name)


def _records(settings: Settings) -> JobRecords:
    return JobRecords(workspace_of(settings), settings.index, _version(settings))


def _one(records: JobRecords, key: str) -> JobRecord:
    for record in records.all():
        if record.intent.key == key:
            return record
    raise RefusedError(
        f"there is no embedding job {key}",
        hint="see the keys with: embedmill jobs list -c SETTINGS",
    )


def _provider(settings: Settings) -> BatchEmbeddingProvider:
    return build_provider(settings.embedder, _version(settings).embedding)[0]


def _facts(record: JobRecord, settings: Settings) -> dict[str, Any]:
    return summary_of(record, price_per_million(settings.embedder))


def _line(record: JobRecord, settings: Settings) -> str:
    facts = _facts(record, settings)
    cost = "unknown" if facts["dollars"] is None else f"${facts['dollars']:.4f}"
    charged = facts["tokens_charged"]
    tokens = "?" if charged is None else f"{charged:,}"
    outcomes = {name: count for name, count in (facts["buckets"] or {}).items() if count}
    # Where not all rows were embedded: how many go again, and how many died.
    ended = f"  {_shown(outcomes)}" if outcomes.keys() - {"succeeded"} else ""
    return (
        f"{facts['key']}  {facts['status']:<11} {facts['rows']:>7,} rows  {tokens:>12} tokens  "
        f"cost {cost}  {facts['created'][:19]}  {facts['provider_job'] or 'not submitted'}{ended}"
    )


@app.command("list")
@reports_errors
def list_jobs(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the embedding jobs of an index's newest version, oldest first."""
    settings = settings_from(config, overrides, index)
    records = sorted(_records(settings).all(), key=lambda record: record.intent.created)
    useless = open_jobs(settings, _version(settings), workspace_of(settings)).unneeded
    if as_json:
        keys = {job["key"] for job in useless}
        print_json(
            [
                {**_facts(record, settings), "unneeded": record.intent.key in keys}
                for record in records
            ]
        )
    elif not records:
        out.print("no embedding jobs")
    else:
        print_lines(_line(record, settings) for record in records)
        if useless:
            print_lines(["", to_type(unneeded_line(useless))])


@app.command()
@reports_errors
def show(
    key: KeyArgument,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one embedding job, with its state at the provider while it is there."""
    settings = settings_from(config, overrides, index)
    record = _one(_records(settings), key)
    facts = _facts(record, settings)
    if record.handle is not None and record.outcome is None:
        state = _provider(settings).state(record.handle)
        facts["provider_status"] = state.raw_status
        facts["provider_counts"] = asdict(state.counts)
    if record.outcome is None:
        facts["unneeded"] = not _needed(settings, record)
    if as_json:
        print_json(facts)
        return
    print_lines(f"{name:16} {_shown(value)}" for name, value in facts.items() if value is not None)


def _shown(value: object) -> str:
    """A fact; of counts by name those that are not 0."""
    if isinstance(value, dict):
        return ", ".join(f"{count:,} {name}" for name, count in value.items() if count) or "none"
    return str(value)


@app.command()
@reports_errors
def cancel(
    key: KeyArgument,
    *,
    give_up: Annotated[
        bool,
        typer.Option(
            "--give-up",
            help="Ask nobody: for a job that no key reaches any more. What it did is lost, and "
            "paid for again.",
        ),
    ] = False,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
) -> None:
    """Cancel an embedding job; what it finished is kept by the next ingest, the rest sent again."""
    settings = settings_from(config, overrides, index)
    with _held(settings, "jobs cancel"):
        records = _records(settings)
        record = _one(records, key)
        needed = _needed(settings, record)
        if give_up:
            give_up_job(record, records, needed=needed, clock=_now)
            then = "are sent, and paid for, again" if needed else "have vectors already"
            out.say(f"{key}: given up; its rows {then}")
            return
        if record.handle is None and record.outcome is None:
            out.say(f"{key}: looking for it at the provider, whose listing may lag by a minute")
        provider = _provider(settings)
        handle = cancel_job(record, records, provider, needed=needed, clock=_now, sleep=time.sleep)
    out.say(f"{key}: {_cancelled(handle, provider, needed=needed)}")


def _needed(settings: Settings, record: JobRecord) -> bool:
    """Whether a row of a job has no vector yet."""
    useless = open_jobs(settings, _version(settings), workspace_of(settings)).unneeded
    return record.intent.key not in {job["key"] for job in useless}


def _cancelled(handle: JobHandle | None, provider: BatchEmbeddingProvider, *, needed: bool) -> str:
    """What happened, and what comes next."""
    if handle is None:
        then = "are sent again" if needed else "have vectors already"
        return f"given up; it was never submitted, its rows {then}"
    if not needed:
        return f"{handle.job_id} is cancelled, and closed here: its rows have vectors already"
    kept = provider.limits.cancelled_rows_are_kept
    then = "collects what it did" if kept else "sends its rows again"
    return f"{handle.job_id} is being cancelled; the next ingest {then}"


def _now() -> datetime:
    return datetime.now(UTC)


@app.command()
@reports_errors
def adopt(
    key: KeyArgument,
    provider_job: Annotated[str, typer.Argument(help="The provider's id of the job.")],
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
) -> None:
    """Tie an intent to a job that you found at the provider yourself."""
    settings = settings_from(config, overrides, index)
    with _held(settings, "jobs adopt"):
        records = _records(settings)
        record = _one(records, key)
        if record.handle is not None or record.outcome is not None:
            raise RefusedError(
                f"embedding job {key} is {status_of(record)} already",
                hint=f"see what it is tied to with: embedmill jobs show {key} -c SETTINGS",
            )
        since = record.intent.created - timedelta(hours=1)
        for listed in _provider(settings).list_jobs(since):
            if listed.handle.job_id == provider_job:
                if listed.fingerprint not in {"", record.intent.fingerprint}:
                    raise RefusedError(
                        f"{provider_job} was submitted for other rows",
                        hint="its name or metadata at the provider has the key of its own intent",
                    )
                records.submitted(key, listed.handle)
                out.say(f"{key}: adopted {provider_job}; the next ingest collects it")
                return
    raise RefusedError(
        f"the provider lists no job {provider_job} since {since:%Y-%m-%d %H:%M} UTC",
        hint="check the id; a new job may take a minute to be listed",
    )
