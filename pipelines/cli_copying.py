"""Commands that take a version elsewhere: copy and export."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import orjson
import typer
import yaml

from embedmill.copying import OtherStore
from embedmill.errors import SettingsError
from embedmill.plain_numbers import number_of
from embedmill.settings import StoreSettings
from embedmill.settings_file import load_settings
from embedmill.workspace import folder_of
from pipelines.cli_options import (
    DEAD_LETTERS,
    OK,
    ConfigArgument,
    IndexOption,
    JsonOption,
    NamedConfigOption,
    SetOption,
    VerboseOption,
    VersionOption,
    configure_logging,
    out,
    print_lines,
    reports_errors,
    settings_from,
    settings_path,
    version_number,
)
from pipelines.cli_reading import print_json
from pipelines.cli_running import LocalOption, TakeOverOption, running
from pipelines.lasting import require_lasting_folder
from pipelines.run_options import RunOptions
from pipelines.summary import copied


@reports_errors
def copy_command(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    to: Annotated[
        Path, typer.Option("--to", help="File whose section `store` is the other store.")
    ],
    version: VersionOption = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="The collection there is this version's, whatever is in."),
    ] = False,
    alias: Annotated[
        bool, typer.Option("--alias/--no-alias", help="Send readers there to the copy at the end.")
    ] = True,
    index: IndexOption = None,
    overrides: SetOption = None,
    local: LocalOption = False,
    address: Annotated[str | None, typer.Option("--address", help="Of a Ray cluster.")] = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Fill another store from the vectors of a version; nothing is embedded again."""
    from pipelines.copy import CopyOptions, copy

    configure_logging(verbose=verbose)
    config = settings_path(config, named)
    settings = settings_from(config, overrides, index)
    other = store_in(to, config, overrides, index)
    choices = CopyOptions(version=version_number(version), overwrite=overwrite, alias=alias)
    own = RunOptions(take_over=take_over)
    target = settings.model_copy(update={"store": other})
    with running(target, own, local=local, address=address) as (executor, options):
        report = copy(settings, other, executor, options, choices)
    if as_json:
        print_json(report.to_json())
    else:
        print_lines(copied(report, str(OtherStore.of(other))))
    raise typer.Exit(DEAD_LETTERS if report.status == "partial" else OK)


@reports_errors
def export_command(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    to: Annotated[
        str, typer.Option("--to", help="Folder, or file://, s3://, gs:// or az:// address.")
    ],
    version: VersionOption = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Write a version as Parquet files for others to read, with a small manifest beside them."""
    from pipelines.export import export

    configure_logging(verbose=verbose)
    config = settings_path(config, named)
    settings = settings_from(config, overrides, index)
    require_lasting_folder(folder_of(to), "the export", "--to", "a bucket")
    done = export(settings, to, version_number(version), take_over=take_over)
    if as_json:
        print_json(done)
        return
    out.say(
        f"{number_of(done['records'], 'record')} of {done['index']} {done['version']} in "
        f"{number_of(len(done['files']), 'file')}: {to}"
    )


def store_in(
    path: Path, config: Path, overrides: list[str] | None, index: str | None
) -> StoreSettings:
    """The store that a file names: its section ``store``, or all of it.

    Raises:
        SettingsError: there is none, or it is not one.
    """
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except FileNotFoundError:
        raise SettingsError(f"{path}: there is no such file") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        first_line = str(error).splitlines()[0]
        raise SettingsError(f"{path}: cannot be read: {first_line}") from error
    section = values.get("store", values) if isinstance(values, dict) else None
    if not isinstance(section, dict) or "kind" not in section:
        raise SettingsError(
            f"{path}: has no section store with a kind",
            hint="write for instance: store: {kind: qdrant, url: 'http://localhost:6333'}",
        )
    # Through the settings, so that what is wrong in it is said as everywhere.
    text = orjson.dumps(section).decode()
    more = [f"index={index}"] if index else []
    return load_settings(config, [*(overrides or []), *more, f"store={text}"]).store
