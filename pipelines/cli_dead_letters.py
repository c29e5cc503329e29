"""Commands about dead letters: list, show, replay."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from embedmill.assembly import workspace_of
from embedmill.dead_letter import DeadLetter, Stage
from embedmill.errors import RefusedError
from embedmill.manifest import Manifest
from embedmill.open_letters import OpenLetter, grouped, open_letters
from embedmill.settings import Settings
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    VerboseOption,
    configure_logging,
    out,
    print_lines,
    reports_errors,
    settings_from,
    to_type,
)
from pipelines.cli_reading import print_json
from pipelines.cli_running import LocalOption, TakeOverOption, finish, running
from pipelines.run_options import RunOptions

app = typer.Typer(
    no_args_is_help=True, help="Dead letters: rows that failed, why, and another try for them."
)
_SHOWN_OF_A_GROUP = 3

StageOption = Annotated[
    Stage | None, typer.Option("--stage", help="Only what failed at this stage.")
]
CodeOption = Annotated[str | None, typer.Option("--code", help="Only this cause.")]


def _selected(
    settings: Settings, stage: Stage | None, code: str | None, ids: list[str] | None = None
) -> list[OpenLetter]:
    workspace = workspace_of(settings)
    version = Manifest(workspace, settings.index).read().current
    if version is None:
        raise RefusedError(
            f"index {settings.index!r} has no versions yet",
            hint="run embedmill ingest SETTINGS first",
        )
    letters = [
        item
        for item in open_letters(workspace, settings.index, version)
        if stage in {None, item.letter.stage} and code in {None, item.letter.code}
    ]
    unknown = set(ids or ()) - {item.letter.id for item in letters}
    if unknown:
        raise RefusedError(
            f"no open dead letter has the id {', '.join(sorted(unknown))}",
            hint="see the ids with: embedmill dlq list --all -c SETTINGS",
        )
    return [item for item in letters if not ids or item.letter.id in ids]


@app.command("list")
@reports_errors
def list_letters(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    stage: StageOption = None,
    code: CodeOption = None,
    every: Annotated[bool, typer.Option("--all", help="Every letter, not a few of each.")] = False,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open dead letters, grouped by cause."""
    letters = _selected(settings_from(config, overrides, index), stage, code)
    if as_json:
        print_json([_record(item) for item in letters])
        return
    if not letters:
        out.print("no open dead letters")
        return
    for (group_stage, group_code), group in grouped(letters):
        out.print(f"[bold]{len(group):,} x {group_stage}: {group_code}[/bold]", highlight=False)
        shown = group if every else group[:_SHOWN_OF_A_GROUP]
        print_lines(f"  {_line(item.letter)}" for item in shown)
        if len(shown) < len(group):
            out.say(f"  and {len(group) - len(shown):,} more (--all)")
    what_next = (
        "put right what they died of, then: embedmill dlq replay -c SETTINGS; an ingest takes up "
        "what could not be read, and rows that were changed"
    )
    out.say(to_type(what_next))


def _line(letter: DeadLetter) -> str:
    chunk = f", chunk {letter.chunk_index}" if letter.chunk_index >= 0 else ""
    return f"{letter.id}  {letter.uri or letter.doc_id}{chunk}  {letter.message}"


@app.command()
@reports_errors
def show(
    letter_id: Annotated[str, typer.Argument(help="Id of a letter, from: embedmill dlq list")],
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one dead letter in full."""
    record = _record(_selected(settings_from(config, overrides, index), None, None, [letter_id])[0])
    if as_json:
        print_json(record)
        return
    for key, value in record.items():
        out.say(f"{key:12} {value}")


@app.command()
@reports_errors
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(help="Ids of letters; all without any.")
    ] = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    stage: StageOption = None,
    code: CodeOption = None,
    local: LocalOption = False,
    take_over: TakeOverOption = False,
    no_wait: Annotated[
        bool,
        typer.Option(
            "--no-wait", help="Submit embedding jobs and exit (status 8); an ingest collects them."
        ),
    ] = False,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Try dead rows again, through the same path into the same version."""
    from pipelines.replay import replay as run_replay

    configure_logging(verbose=verbose)
    settings = settings_from(config, overrides, index)
    letters = _selected(settings, stage, code, ids)
    if not letters:
        if as_json:
            print_json({"status": "nothing-to-do", "index": settings.index})
        else:
            out.print("no open dead letters: nothing to replay")
        return
    choices = RunOptions(take_over=take_over, wait_for_jobs=not no_wait)
    with running(settings, choices, local=local) as (executor, options):
        report = run_replay(settings, executor, letters, options)
    finish(report, as_json=as_json)


def _record(item: OpenLetter) -> dict[str, object]:
    return {
        "id": item.letter.id,
        **asdict(item.letter),
        "runs": item.runs,
        "first": item.first,
    }
