"""The command line: ``embedmill``, or ``python -m pipelines.cli`` in a Ray job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer

from embedmill.errors import SettingsError
from embedmill.settings import Settings
from pipelines import (
    cli_audit,
    cli_copying,
    cli_dead_letters,
    cli_doctor,
    cli_evaluate,
    cli_jobs,
    cli_kinds,
    cli_publishing,
    cli_reading,
    cli_rehearse,
    cli_versions,
)
from pipelines.cli_kinds import kinds_help
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    VerboseOption,
    configure_logging,
    err,
    out,
    reports_errors,
    settings_from,
)
from pipelines.cli_running import (
    AddressOption,
    LocalOption,
    NoWaitOption,
    TakeOverOption,
    TolerateDeadOption,
    finish,
    running,
)
from pipelines.run_options import RunOptions

app = typer.Typer(
    name="embedmill",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Documents in, a searchable, versioned vector index out.\n\n"
    "Start with: embedmill ingest SETTINGS.yaml, then embedmill search QUESTION -c SETTINGS.yaml. "
    "Exit status: 0 all well; 1 a bug; 2 wrong usage or settings; 3 done, but some rows died; "
    "4 refused, nothing changed; 5 the run failed; 6 somebody else holds the index; "
    "7 an audit or check has findings; 8 embedding jobs go on at the provider, run again later; "
    "9 done, but so many documents are gone that none was deleted; 10 published, but a hook was "
    "not told; 11 published, and taken back by --watch; 75 stopped, run again.",
)


SourceOption = Annotated[
    Path | None,
    typer.Option(
        "--source",
        help="Folder or file to read instead of the settings' own; goes into an index of its own "
        "name unless --index says which.",
    ),
]
AllowDeletesOption = Annotated[
    bool,
    typer.Option("--allow-deletes", help="Delete what is gone from the source, however much."),
]


@app.command()
@reports_errors
def ingest(
    config: Annotated[Path, typer.Argument(help="Settings file of the index.")],
    *,
    source: SourceOption = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    local: LocalOption = False,
    address: AddressOption = None,
    allow_deletes: AllowDeletesOption = False,
    take_over: TakeOverOption = False,
    tolerate_dead: TolerateDeadOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring an index in line with its source. Run it again to resume, or to sync."""
    from pipelines.ingest import ingest as run_ingest

    configure_logging(verbose=verbose)
    settings = _with_source(config, overrides, source, index)
    choices = RunOptions(
        allow_deletes=allow_deletes, take_over=take_over, wait_for_jobs=not no_wait
    )
    with running(settings, choices, local=local, address=address) as (executor, options):
        report = run_ingest(settings, executor, options)
    if source is not None and not as_json:
        err.print(
            f"search it with: embedmill search QUESTION --config {config} --index {settings.index}",
            highlight=False,
            soft_wrap=True,
        )
    finish(report, as_json=as_json, tolerate_dead=tolerate_dead)


@app.command()
@reports_errors
def compact(
    config: ConfigOption = DEFAULT_CONFIG,
    *,
    index: IndexOption = None,
    overrides: SetOption = None,
    take_over: TakeOverOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Fold the segments of an index into as few as it needs; syncs do it by themselves in time."""
    from pipelines.compact import compact as run_compact

    configure_logging(verbose=verbose)
    settings = settings_from(config, overrides, index)
    choices = RunOptions(take_over=take_over)
    with running(settings, choices, local=True) as (executor, options):
        done = run_compact(settings, executor, options)
    if done.segments_before:
        out.print(f"{done.segments_before:,} segments folded into {done.segments_after:,}")
    else:
        out.print("nothing to fold: the index has no more segments than it needs")


def _with_source(
    config: Path, overrides: list[str] | None, source: Path | None, index: str | None
) -> Settings:
    """Settings with another source; its index is its own, so that no other one is emptied."""
    if source is None:
        return settings_from(config, overrides, index)
    more = source_overrides(source, [*(overrides or [])])
    own = settings_from(config, more, index)
    name = index_name(source)
    if index is not None:
        return own
    if name == own.index:
        raise SettingsError(
            f"--source {source} would go into index {name!r}, which the settings fill from "
            "another source",
            hint=f"say which index it goes into: --index {name} for that one, or another name",
        )
    return settings_from(config, more, name)


def source_overrides(source: Path, overrides: list[str]) -> list[str]:
    """Settings for a source given by path alone: a table by its ending, else files."""
    name = source.name.lower().removesuffix(".gz")
    kind = "table" if Path(name).suffix in TABLE_ENDINGS else "files"
    # JSON is YAML, whatever the path holds.
    path = orjson.dumps(str(source)).decode()
    return [f"source={{kind: {kind}, path: {path}}}", *overrides]


TABLE_ENDINGS = {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}


def index_name(source: Path) -> str:
    """An index name from the name of a folder or file."""
    import re

    stem = source.resolve().name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-._")[:64] or "documents"


app.command("search")(cli_reading.search)
app.command("status")(cli_reading.status)
app.command("reembed")(cli_publishing.reembed_command)
app.command("publish")(cli_publishing.publish_command)
app.command("rollback")(cli_publishing.rollback_command)
app.command("retire")(cli_publishing.retire_command)
app.command("prune")(cli_publishing.prune_command)
app.add_typer(cli_versions.app, name="versions")
app.command("why")(cli_versions.why)
app.command("audit")(cli_audit.audit_command)
app.command("evaluate")(cli_evaluate.evaluate_command)
app.command("contract")(cli_evaluate.contract_command)
app.command("check-query")(cli_evaluate.check_query)
app.command("copy")(cli_copying.copy_command)
app.command("export")(cli_copying.export_command)
app.add_typer(cli_dead_letters.app, name="dlq")
app.add_typer(cli_jobs.app, name="jobs")
app.command("settings")(cli_reading.show_recipes)
app.command("doctor")(cli_doctor.doctor)
app.command("kinds", help=kinds_help())(cli_kinds.kinds)
app.command("rehearse")(cli_rehearse.rehearse)


def main() -> None:
    """Entry point of the ``embedmill`` command."""
    app()


if __name__ == "__main__":
    main()
