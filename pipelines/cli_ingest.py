"""The commands ``ingest`` and ``compact``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import orjson
import typer

from embedmill.errors import SettingsError
from embedmill.plain_numbers import number_of
from embedmill.settings import Settings
from embedmill.workspace_settings import names_bucket
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigArgument,
    ConfigOption,
    IndexOption,
    JsonOption,
    NamedConfigOption,
    SetOption,
    VerboseOption,
    configure_logging,
    err,
    out,
    reports_errors,
    settings_from,
    settings_path,
    to_type,
)
from pipelines.cli_running import (
    AddressOption,
    LocalOption,
    NoWaitOption,
    RayOption,
    TakeOverOption,
    TolerateDeadOption,
    finish,
    running,
)
from pipelines.run_options import RunOptions

SourceOption = Annotated[
    str | None,
    typer.Option(
        "--source",
        help="Folder, file or s3:// address to read instead of the settings' own, by the same "
        "patterns or columns; goes into an index of its own name unless --index says which.",
    ),
]
AllowDeletesOption = Annotated[
    bool,
    typer.Option("--allow-deletes", help="Delete what is gone from the source, however much."),
]
RereadOption = Annotated[
    bool,
    typer.Option(
        "--reread",
        help="Read every object of a bucket, also those that are listed as they were when they "
        "were read last. Files are always read.",
    ),
]


@reports_errors
def ingest(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    source: SourceOption = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    local: LocalOption = False,
    ray: RayOption = False,
    address: AddressOption = None,
    allow_deletes: AllowDeletesOption = False,
    reread: RereadOption = False,
    take_over: TakeOverOption = False,
    tolerate_dead: TolerateDeadOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Bring an index in line with its source. Run it again to resume, or to sync."""
    from pipelines.ingest import ingest as run_ingest

    configure_logging(verbose=verbose)
    config = settings_path(config, named)
    settings = _with_source(config, overrides, source, index)
    choices = RunOptions(
        allow_deletes=allow_deletes,
        reread=reread,
        take_over=take_over,
        wait_for_jobs=not no_wait,
    )
    if local and ray:
        raise SettingsError("--local and --ray cannot both be", hint="leave one of them out")
    with running(settings, choices, local=local, ray=ray, address=address, may_be_small=True) as (
        executor,
        options,
    ):
        report = run_ingest(settings, executor, options)
    if source is not None and not as_json:
        err.say(to_type("search it with: embedmill search QUESTION -c SETTINGS"))
    finish(report, as_json=as_json, tolerate_dead=tolerate_dead)


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
        out.say(f"{number_of(done.segments_before, 'segment')} folded into {done.segments_after:,}")
    else:
        out.say("nothing to fold: the index has no more segments than it needs")


def _with_source(
    config: Path, overrides: list[str] | None, source: str | None, index: str | None
) -> Settings:
    """Settings with another source; its index is its own, so that no other one is emptied."""
    if source is None:
        return settings_from(config, overrides, index)
    typed = overrides or []
    # What is typed about the source may only make sense for the one that is given.
    elsewhere = [each for each in typed if each.partition("=")[0].split(".")[0] != "source"]
    own = settings_from(config, elsewhere, index)
    more = [source_override(source, own.source.kind)]
    if own.source.bucket is not None and not source.startswith("s3://"):
        # How the settings' bucket is reached would have no effect, and be refused.
        more.append("source.bucket=null")
    more += typed
    name = index_name(source)
    if index is not None:
        return settings_from(config, more, index)
    if name == own.index:
        raise SettingsError(
            f"--source {source} would go into index {name!r}, which the settings fill from "
            "another source",
            hint=f"say which index it goes into: --index {name} for that one, or another name",
        )
    return settings_from(config, more, name)


def source_override(source: str, kind_of_settings: str) -> str:
    """The setting for a source given by path alone: a table by its ending, else files.

    A folder with tables in it is one of tables where the settings' own source is, and so is a
    prefix of a bucket. The settings' own patterns, or names of columns, hold for it where its kind
    is theirs.

    Raises:
        SettingsError: the path is not UTF-8, which settings are.
    """
    tables = _is_table(source) or (kind_of_settings == "table" and _may_hold_tables(source))
    kind = "table" if tables else "files"
    try:
        # JSON is YAML, whatever the path holds.
        path = orjson.dumps(source).decode()
    except TypeError:
        raise SettingsError(
            f"--source {source}: the path is not UTF-8", hint="give it a name that is, or a link"
        ) from None
    if kind == kind_of_settings:
        return f"source.path={path}"
    return f"source={{kind: {kind}, path: {path}}}"


def _is_table(name: str) -> bool:
    return Path(name.lower().removesuffix(".gz")).suffix in TABLE_ENDINGS


def _may_hold_tables(source: str) -> bool:
    if names_bucket(source):
        return True
    return any(any(map(_is_table, names)) for _, _, names in os.walk(source))


TABLE_ENDINGS = {".jsonl", ".ndjson", ".csv", ".tsv", ".parquet"}


def index_name(source: str) -> str:
    """An index name from the name of a folder or file, or of a bucket."""
    import re

    path = Path(source) if names_bucket(source) else Path(source).resolve()
    stem = path.name.split(".")[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-._")[:64] or "documents"
