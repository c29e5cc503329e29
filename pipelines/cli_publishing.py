"""Commands that change which versions there are and which one readers see."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from embedmill.errors import SettingsError
from embedmill.settings import Settings
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
    print_lines,
    reports_errors,
    settings_from,
)
from pipelines.cli_reading import print_json
from pipelines.cli_running import (
    AddressOption,
    LocalOption,
    NoWaitOption,
    TakeOverOption,
    TolerateDeadOption,
    finish,
    running,
)
from pipelines.publish import Publication
from pipelines.run_options import RunOptions

ConfigArgument = Annotated[Path, typer.Argument(help="Settings file of the index.")]
VersionArgument = Annotated[
    str | None, typer.Argument(metavar="[VERSION]", help="3, or v3.", show_default=False)
]


@reports_errors
def reembed_command(
    config: ConfigArgument,
    *,
    index: IndexOption = None,
    overrides: SetOption = None,
    local: LocalOption = False,
    address: AddressOption = None,
    take_over: TakeOverOption = False,
    tolerate_dead: TolerateDeadOption = False,
    no_wait: NoWaitOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Build the version that the settings ask for beside the one that readers see.

    From the stored chunks, without the source, unless the chunking recipe differs too. Readers and
    syncs with the old settings go on. Run it again to resume, or to catch up.
    """
    from pipelines.reembed import reembed

    configure_logging(verbose=verbose)
    settings = settings_from(config, overrides, index)
    choices = RunOptions(take_over=take_over, wait_for_jobs=not no_wait)
    with running(settings, choices, local=local, address=address) as (executor, options):
        rebuilt = reembed(settings, executor, options)
    if rebuilt is None:
        _say_nothing_to_do(settings, as_json=as_json)
        return
    name = rebuilt.version.name
    if not as_json and rebuilt.version.state == "ready":
        err.print(
            f"{name} is ready; send readers to it with: embedmill publish --config {config}",
            highlight=False,
            soft_wrap=True,
        )
    finish(rebuilt.report, as_json=as_json, tolerate_dead=tolerate_dead)


def _say_nothing_to_do(settings: Settings, *, as_json: bool) -> None:
    if as_json:
        print_json({"status": "nothing-to-do", "index": settings.index})
    else:
        out.print(
            f"nothing to do: the published version of {settings.index} has this recipe",
            highlight=False,
            soft_wrap=True,
        )


@reports_errors
def publish_command(
    version: VersionArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    local: LocalOption = False,
    address: AddressOption = None,
    take_over: TakeOverOption = False,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Send readers to a version that is complete, in one step.

    Without a number: the version that the settings ask for, or else the newest that is ready. What
    syncs brought since it was built is taken in first.
    """
    from pipelines.publish import publish

    configure_logging(verbose=verbose)
    number = version_number(version)
    settings = settings_from(config, overrides, index)
    choices = RunOptions(take_over=take_over)
    with running(settings, choices, local=local, address=address) as (executor, options):
        done = publish(settings, executor, options, number=number)
    _report(settings, done, as_json=as_json)


@reports_errors
def rollback_command(
    version: VersionArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Take readers back to the version that was published before, in one step.

    It is as it was left; syncs with its settings then bring it up to date.
    """
    from pipelines.publish import rollback

    configure_logging(verbose=verbose)
    number = version_number(version)
    settings = settings_from(config, overrides, index)
    done = rollback(settings, number=number)
    _report(settings, done, as_json=as_json)


@reports_errors
def retire_command(
    version: Annotated[str, typer.Argument(metavar="VERSION", help="3, or v3.")],
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
) -> None:
    """Give a version up that readers do not see: nothing goes on with it, prune may delete it."""
    from pipelines.prune import retire

    settings = settings_from(config, overrides, index)
    number = version_number(version)
    assert number is not None
    given_up = retire(settings, number).version(number)
    out.print(f"{given_up.name} is {given_up.state}; embedmill prune deletes its data in time")


@reports_errors
def prune_command(
    version: VersionArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, change nothing.")
    ] = False,
    take_over: TakeOverOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Delete the data of retired versions that nobody needs any more, and old reports.

    With a version: that one now, whatever the settings keep. What readers see always stays.
    """
    from pipelines.prune import prune

    configure_logging(verbose=verbose)
    settings = settings_from(config, overrides, index)
    number = version_number(version)
    done = prune(settings, RunOptions(take_over=take_over), number=number, dry_run=dry_run)
    print_lines(f"{kept.name} stays: {reason}" for kept, reason in done.kept)
    verb = "would be deleted" if dry_run else "deleted"
    for gone in done.versions:
        print_lines([f"{gone.name} {verb}: collection {gone.collection}, {gone.embedding.id}"])
    if not done.versions:
        out.print("no version to delete")
    if done.files:
        out.print(f"{done.files:,} files deleted from the workspace", highlight=False)


def version_number(text: str | None) -> int | None:
    """The number of a version as people write it.

    Raises:
        SettingsError: it is none.
    """
    if text is None:
        return None
    digits = text.removeprefix("v")
    if not digits.isdecimal() or int(digits) < 1:
        raise SettingsError(
            f"{text!r} is no version: write 3, or v3",
            hint=f"settings are given with --config {text}" if "." in text else "",
        )
    return int(digits)


def _report(settings: Settings, done: Publication, *, as_json: bool) -> None:
    if as_json:
        print_json(_as_json(settings, done))
        return
    after, before = done.switch.after, done.switch.before
    lines = [f"readers of index {settings.index} saw {after.name} already; nothing was changed"]
    if done.switch.changed:
        instead = f" instead of {before.name}" if before is not None else ""
        lines = [f"readers of index {settings.index} see {after.name} now{instead}"]
    lines.append(f"collection {after.collection}, alias {settings.index}, run {done.run}")
    if done.lacking:
        lines.append(
            f"it lacks {done.lacking:,} segments that syncs brought since; an ingest with its own "
            "settings takes them in"
        )
    print_lines(lines)


def _as_json(settings: Settings, done: Publication) -> dict[str, Any]:
    before, after = done.switch.before, done.switch.after
    return {
        "index": settings.index,
        "run": done.run,
        "changed": done.switch.changed,
        "published": after.number,
        "before": before and before.number,
        "collection": after.collection,
        "lacking_segments": done.lacking,
    }
