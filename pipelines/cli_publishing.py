"""Commands that change which versions there are and which one readers see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Annotated, Any

import typer

from embedmill.errors import SettingsError
from embedmill.gate import failed_gates
from embedmill.plain_numbers import number_of
from embedmill.settings import Settings
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    INTERRUPTED,
    OK,
    TAKEN_BACK,
    UNTOLD,
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
    print_lines,
    reports_errors,
    seconds,
    settings_from,
    settings_path,
    to_type,
    version_number,
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
from pipelines.watch import Watched, WatchPlan, watch_and_tell

VersionArgument = Annotated[
    str | None, typer.Argument(metavar="[VERSION]", help="3, or v3.", show_default=False)
]
WatchOption = Annotated[
    str | None,
    typer.Option(
        "--watch", metavar="TIME", help="Watch the publication for 30m, 2h; needs --check."
    ),
]
CheckOption = Annotated[
    str | None,
    typer.Option(
        metavar="COMMAND",
        help="For the shell; when it fails three times in a row, readers are taken back.",
    ),
]
CheckEveryOption = Annotated[
    str, typer.Option(metavar="TIME", help="From one check to the next, and its limit.")
]
ForceOption = Annotated[bool, typer.Option("--force", help="Although a gate speaks against it.")]


@reports_errors
def reembed_command(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
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
    config = settings_path(config, named)
    settings = settings_from(config, overrides, index)
    choices = RunOptions(take_over=take_over, wait_for_jobs=not no_wait)
    with running(settings, choices, local=local, address=address) as (executor, options):
        rebuilt = reembed(settings, executor, options)
    if rebuilt is None:
        _say_nothing_to_do(settings, as_json=as_json)
        return
    name = rebuilt.version.name
    if not as_json and rebuilt.version.state == "ready":
        typed = f"embedmill publish {rebuilt.version.number} -c SETTINGS"
        err.say(to_type(f"{name} is ready; send readers to it with: {typed}"))
    finish(rebuilt.report, as_json=as_json, tolerate_dead=tolerate_dead)


def _say_nothing_to_do(settings: Settings, *, as_json: bool) -> None:
    if as_json:
        print_json({"status": "nothing-to-do", "index": settings.index})
    else:
        out.say(f"nothing to do: the published version of {settings.index} has this recipe")


@reports_errors
def publish_command(
    version: VersionArgument = None,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    watch_for: WatchOption = None,
    check: CheckOption = None,
    check_every: CheckEveryOption = "30s",
    force: ForceOption = False,
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
    plan = _watch_plan(watch_for, check, check_every)
    number = version_number(version)
    settings = settings_from(config, overrides, index)
    choices = RunOptions(take_over=take_over)
    with running(settings, choices, local=local, address=address) as (executor, options):
        done = publish(settings, executor, options, number=number, force=force, tells=plan is None)
    watched = None
    if plan is not None:
        err.say(f"{done.switch.after.name} is published; watching it")
        # Nothing runs meanwhile but the check, and the telling.
        with running(settings, choices, local=True) as (_, options):
            done, watched = watch_and_tell(settings, done, plan, stop=options.stop)
    _report(settings, done, watched, as_json=as_json)


def _watch_plan(watch_for: str | None, check: str | None, every: str) -> WatchPlan | None:
    if (watch_for is None) != (check is None):
        raise SettingsError(
            "--watch and --check go together",
            hint="for instance: --watch 30m --check 'curl -fsS http://search/health'",
        )
    if watch_for is None or check is None:
        return None
    if not check.strip():
        raise SettingsError("--check is empty: it takes a command for the shell")
    return WatchPlan(check, seconds(watch_for, "--watch"), seconds(every, "--check-every"))


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
    if number is None and not done.switch.changed:
        err.say(
            to_type(
                "an earlier rollback brought readers there; to go on to another version, say "
                "which: embedmill rollback NUMBER -c SETTINGS (see: embedmill versions -c SETTINGS)"
            )
        )
    _report(settings, done, None, as_json=as_json)


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
    out.say(
        to_type(
            f"{given_up.name} is given up (its state is {given_up.state}); embedmill prune -c "
            "SETTINGS deletes its data in time"
        )
    )


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
        if gone.number in done.not_ours:
            out.say(f"{gone.name} {verb}: {gone.embedding.id}")
            out.say(f"  a collection {gone.collection} in the store is not this index's and stays")
        else:
            out.say(f"{gone.name} {verb}: collection {gone.collection}, {gone.embedding.id}")
    if not done.versions:
        out.say("no version to delete")
    if done.files:
        out.say(f"{number_of(done.files, 'file')} deleted from the workspace")


def _report(
    settings: Settings, done: Publication, watched: Watched | None, *, as_json: bool
) -> None:
    """Say what was done, and end with the status that fits."""
    told = [*done.told, *(watched.back.told if watched and watched.back else ())]
    if as_json:
        print_json(_as_json(settings, done, watched))
    else:
        print_lines(_lines(settings, done))
        if watched is not None:
            print_lines(_watch_lines(watched))
    untold = [delivery for delivery in told if not delivery.delivered]
    for delivery in untold:
        err.say(
            f"{delivery.hook} was not told after {number_of(delivery.tries, 'try', 'tries')}: "
            f"{delivery.error}"
        )
    if untold:
        err.say("  next: run the same command again: it tells whoever was not told yet")
    if watched is not None and watched.ended == "rolled-back":
        raise typer.Exit(TAKEN_BACK)
    if watched is not None and watched.ended == "interrupted":
        raise typer.Exit(INTERRUPTED)
    raise typer.Exit(UNTOLD if untold else OK)


def _lines(settings: Settings, done: Publication) -> Iterator[str]:
    after, before = done.switch.after, done.switch.before
    if done.switch.changed:
        instead = f" instead of {before.name}" if before is not None else ""
        yield f"readers of index {settings.index} see {after.name} now{instead}"
    elif done.switch.alias_moved:
        yield f"readers of the store's alias {settings.index} see {after.name} now"
        yield "those that follow the manifest saw it already"
    else:
        yield f"readers of index {settings.index} saw {after.name} already; nothing was changed"
    yield f"collection {after.collection}, alias {settings.index}, run {done.run}"
    if done.gates:
        failed = ", ".join(gate.name for gate in failed_gates(done.gates))
        said = f"published although these failed: {failed}" if failed else "none speaks against it"
        yield f"{number_of(len(done.gates), 'gate')}: {said}"
    if done.lacking:
        yield (
            f"it lacks {number_of(done.lacking, 'segment')} that syncs brought since; an ingest "
            "with its own settings takes them in"
        )
    heard = [delivery.hook for delivery in done.told if delivery.delivered]
    if heard:
        yield f"told: {', '.join(heard)}"


def _watch_lines(watched: Watched) -> Iterator[str]:
    counted = f"{number_of(watched.checks, 'check')}, {watched.failed:,} failed"
    if watched.back is not None:
        yield f"{counted}: readers were taken back to {watched.back.switch.after.name}"
    elif watched.ended == "overtaken":
        yield f"{counted}: somebody else moved readers meanwhile; nothing was done"
    elif watched.ended == "interrupted":
        yield f"{counted}: the watch was stopped; the version stays published"
    else:
        yield f"{counted}: the version stays published"


def _as_json(settings: Settings, done: Publication, watched: Watched | None) -> dict[str, Any]:
    before, after = done.switch.before, done.switch.after
    return {
        "index": settings.index,
        "run": done.run,
        "changed": done.switch.changed,
        "alias_moved": done.switch.alias_moved,
        "published": after.number,
        "before": before and before.number,
        "collection": after.collection,
        "lacking_segments": done.lacking,
        "gates": [result.to_json() for result in done.gates],
        "told": [asdict(delivery) for delivery in done.told],
        "watch": watched
        and {
            "checks": watched.checks,
            "failed": watched.failed,
            "ended": watched.ended,
            "back_to": watched.back and watched.back.switch.after.number,
        },
    }
