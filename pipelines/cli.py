"""The command line: ``embedmill``, or ``python -m pipelines.cli`` in a Ray job.

Only the names of the commands are here: a command's own module, and with it all that it needs, is
imported when it is run. ``embedmill --help`` takes 0.2 s instead of 1.2 s for that.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
import typer.core
import typer.main

if TYPE_CHECKING:
    from typer._click import Command, Context

# click's; where it is imported from depends on typer's release.
_UsageError: type[Any] = typer.BadParameter.mro()[1]


class Place(NamedTuple):
    """Where a command is.

    Attributes:
        module: of this package.
        name: of the function, or of the group of commands.
        help: its first line.
    """

    module: str
    name: str
    help: str


# In the order in which they are listed; a test holds the lines against the commands' own.
COMMANDS = {
    "ingest": Place(
        "cli_ingest",
        "ingest",
        "Bring an index in line with its source. Run it again to resume, or to sync.",
    ),
    "compact": Place(
        "cli_ingest",
        "compact",
        "Fold the segments of an index into as few as it needs; syncs do it by themselves in time.",
    ),
    "search": Place("cli_reading", "search", "Search the published version of an index."),
    "status": Place(
        "cli_status", "status", "Show the last run of an index and the work that is left."
    ),
    "reembed": Place(
        "cli_publishing",
        "reembed_command",
        "Build the version that the settings ask for beside the one that readers see.",
    ),
    "publish": Place(
        "cli_publishing",
        "publish_command",
        "Send readers to a version that is complete, in one step.",
    ),
    "rollback": Place(
        "cli_publishing",
        "rollback_command",
        "Take readers back to the version that was published before, in one step.",
    ),
    "retire": Place(
        "cli_publishing",
        "retire_command",
        "Give a version up that readers do not see: nothing goes on with it, prune may delete it.",
    ),
    "prune": Place(
        "cli_publishing",
        "prune_command",
        "Delete the data of retired versions that nobody needs any more, and old reports.",
    ),
    "why": Place(
        "cli_versions",
        "why",
        "Show where the records of a document come from: segment, vector, embedding job, run.",
    ),
    "audit": Place(
        "cli_audit",
        "audit_command",
        "Compare ledger and store, record by record; nothing is embedded. Exit status 7: findings.",
    ),
    "evaluate": Place(
        "cli_evaluate",
        "evaluate_command",
        "Hold a version against all gates: books, vectors, quality. Exit status 7: a gate failed.",
    ),
    "contract": Place(
        "cli_evaluate",
        "contract_command",
        "Print the query contract of the published version: what a search service must do.",
    ),
    "check-query": Place(
        "cli_evaluate",
        "check_query",
        "Does a search service embed queries as the index expects? Exit status 7: it does not.",
    ),
    "copy": Place(
        "cli_copying",
        "copy_command",
        "Fill another store from the vectors of a version; nothing is embedded again.",
    ),
    "export": Place(
        "cli_copying",
        "export_command",
        "Write a version as Parquet files for others to read, with a small manifest beside them.",
    ),
    "settings": Place(
        "cli_reading",
        "show_recipes",
        "Show the effective settings, every default included, and the recipes they stand for.",
    ),
    "doctor": Place(
        "cli_doctor",
        "doctor",
        "Look whether everything is here: cores, extras, GPU, and an index's model and stores.",
    ),
    "kinds": Place(
        "cli_kinds",
        "kinds",
        "List the kinds of sources, chunkers, embedders and stores, or the keys of one.",
    ),
    "rehearse": Place(
        "cli_rehearse",
        "rehearse",
        "Serve a fake provider or store on this machine: rehearse without a key, faults by plan.",
    ),
    "versions": Place(
        "cli_versions",
        "app",
        "Versions of an index: recipe, counts, state. Without a command: all of them.",
    ),
    "dlq": Place(
        "cli_dead_letters",
        "app",
        "Dead letters: rows that failed, why, and another try for them.",
    ),
    "jobs": Place("cli_jobs", "app", "Embedding jobs: what is at the provider, what it cost."),
}


def command_of(name: str) -> Command:
    """Import a command."""
    place = COMMANDS[name]
    found = getattr(import_module(f"pipelines.{place.module}"), place.name)
    alone = typer.Typer(add_completion=False)
    if isinstance(found, typer.Typer):
        alone.add_typer(found, name=name)
    else:
        alone.command(name)(found)
    return typer.main.get_group(alone).commands[name]


class _Later(typer.core.TyperCommand):
    """Stands for a command that is imported when it is run."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: Context | None = None, **extra: object
    ) -> Context:
        """The context of the command itself: it is the one that goes on."""
        assert self.name is not None
        return command_of(self.name).make_context(info_name, args, parent, **extra)


class _Root(typer.core.TyperGroup):
    """Says how settings are named to who names them as another command takes them."""

    def invoke(self, ctx: Context) -> object:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except _UsageError as error:
            found = re.search(r"[('](?:[^()']* )?([^()' ]+\.ya?ml)[)']", error.message)
            if found and error.ctx:
                error.message += _way_to_name(found[1], error.ctx)
            raise


def _way_to_name(settings: str, ctx: Context) -> str:
    """A line for a command that takes its settings as an option; nothing for any other."""
    options = {name for param in ctx.command.params for name in param.opts}
    if "config" in options:
        return ""
    if "--config" in options:
        return f"\nSettings are an option of this command: -c {settings}"
    if "list" in getattr(ctx.command, "commands", {}):
        return f"\nSettings are an option of its commands: {ctx.command_path} list -c {settings}"
    return ""


app = typer.Typer(
    name="embedmill",
    cls=_Root,
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


def _say_version(asked: bool) -> None:  # noqa: FBT001 - typer's way
    if asked:
        from embedmill.extras import release

        typer.echo(f"embedmill {release()}")
        raise typer.Exit


@app.callback()
def _root(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_say_version,
            is_eager=True,
            help="Say which embedmill this is; embedmill doctor says more.",
        ),
    ] = False,
) -> None:
    # Its docstring would take the place of the help above.
    del version


for _name, _place in COMMANDS.items():
    app.command(_name, cls=_Later, help=_place.help)(lambda: None)


def main() -> None:
    """Entry point of the ``embedmill`` command."""
    app()


if __name__ == "__main__":
    main()
