"""What several commands share: options, loading settings, exit codes, the process boundary."""

from __future__ import annotations

import functools
import logging
import os
import re
import shlex
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NoReturn, ParamSpec, TypeVar

import typer

from embedmill.errors import (
    DeletionsWithheldError,
    EmbedmillError,
    IndexLockedError,
    OutcomeUnknownError,
    RefusedError,
    SettingsError,
    TransientError,
)
from embedmill.settings import Settings
from embedmill.settings_file import load_settings
from pipelines.terminal import Terminal, VisibleFormatter

# Exit statuses; docs/operations.md says what each means.
OK, UNEXPECTED, USAGE, DEAD_LETTERS, REFUSED, FAILED, LOCKED = range(7)
FINDINGS, WAITING, WITHHELD, UNTOLD, TAKEN_BACK, INTERRUPTED = 7, 8, 9, 10, 11, 75
_BY_CODE = {"interrupted": INTERRUPTED, DeletionsWithheldError.code: WITHHELD}

P = ParamSpec("P")
T = TypeVar("T")
out = Terminal()
err = Terminal(stderr=True)
# Settings in a command that a text tells to type.
_PLACEHOLDER = re.compile(r"(\bembedmill (?:[\w.-]+ )+)SETTINGS\b")
DEFAULT_CONFIG = Path("embedmill.yaml")
# A year: of what people wait for with a command, longer is a slip.
_LONGEST_S = 366 * 86_400
CONFIG_VARIABLE = "EMBEDMILL_CONFIG"

ConfigOption = Annotated[
    Path,
    typer.Option(
        "--config",
        "-c",
        envvar=CONFIG_VARIABLE,
        help="Settings file of the index.",
        show_default=True,
    ),
]
# Of the commands that take the file as their argument.
ConfigArgument = Annotated[
    Path | None,
    typer.Argument(
        help=f"Settings file of the index; else ${CONFIG_VARIABLE}, or {DEFAULT_CONFIG}.",
        show_default=False,
    ),
]
NamedConfigOption = Annotated[
    Path | None,
    typer.Option("--config", "-c", help="The same, as other commands take it."),
]
VersionOption = Annotated[
    str | None,
    typer.Option(
        "--version", metavar="vN", help="Another version than the published one: 3, or v3."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change a setting for this command, e.g. --set run.embed_workers=2. Repeatable.",
    ),
]
IndexOption = Annotated[
    str | None, typer.Option("--index", help="Name of the index, instead of the settings' own.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
VerboseOption = Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")]


@dataclass(frozen=True, slots=True)
class _Choice:
    """How this command was told its settings: another one is to be told the same."""

    file: Path
    index: str | None
    overrides: tuple[str, ...]

    def typed_in(self, command: str) -> str:
        """What stands for ``SETTINGS`` in a command."""
        sections = {each: re.split("[.=]", each, maxsplit=1)[0] for each in self.overrides}
        fills = command.split()[1] == "ingest"
        left_out = {"run"} if command.split()[1] in ("ingest", "reembed") else {"run", "source"}
        words = [str(self.file)]
        for each, section in sections.items():
            words += [] if section in left_out else ["--set", each]
        # What an index is filled from may be another source than the settings' own.
        if self.index and (not fills or "source" in sections.values()):
            words += ["--index", self.index]
        return shlex.join(words)


_choice: ContextVar[_Choice | None] = ContextVar("_choice", default=None)


def settings_path(argument: Path | None, named: Path | None) -> Path:
    """The settings file of a command that takes it as its argument, or as ``--config``.

    Raises:
        SettingsError: two files are named.
    """
    if argument and named and argument != named:
        raise SettingsError(
            f"two settings files are named: {argument} and {named}", hint="leave one of them out"
        )
    return argument or named or Path(os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


def settings_from(config: Path, overrides: list[str] | None, index: str | None = None) -> Settings:
    """Load settings with the overrides of the command line."""
    _choice.set(_Choice(config, index, tuple(overrides or ())))
    more = [f"index={index}"] if index else []
    return load_settings(config, [*(overrides or []), *more])


def configure_logging(*, verbose: bool) -> None:
    """Standard logging to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(VisibleFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    # Libraries that log whole requests at INFO say nothing a user of ours needs.
    for name in ("httpx", "sentence_transformers", "ray"):
        logging.getLogger(name).setLevel(logging.WARNING)


def seconds(text: str, option: str) -> float:
    """A time as people write it: ``90s``, ``30m``, ``2h``.

    Raises:
        SettingsError: it is none.
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", text)
    if found is None:
        raise SettingsError(f"{option} takes a time like 90s, 30m or 2h, not {text!r}")
    given = float(found.group(1)) * {"s": 1, "m": 60, "h": 3600}[found.group(2)]
    if not 0 < given <= _LONGEST_S:
        raise SettingsError(
            f"{option} takes more than nothing and at most {_LONGEST_S:,} s: {text}"
        )
    return given


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


def to_type(text: str) -> str:
    """What somebody is told, with this command's settings in the commands that it names."""
    choice = _choice.get()
    if choice is None:
        return text
    return _PLACEHOLDER.sub(lambda found: found[1] + choice.typed_in(found[1]), text)


def print_lines(lines: Iterable[str]) -> None:
    """Print lines as they are, however wide."""
    for line in lines:
        out.say(line)


def exit_status(error: EmbedmillError) -> int:
    """The status that a command ends with after this error."""
    if error.code in _BY_CODE:
        return _BY_CODE[error.code]
    if isinstance(error, IndexLockedError):
        return LOCKED
    if isinstance(error, SettingsError):
        return USAGE
    if isinstance(error, RefusedError):
        return REFUSED
    return FAILED


def fail(error: EmbedmillError) -> NoReturn:
    """Print an error and what to do next; end the command."""
    err.say(f"error: {to_type(str(error))}")
    hint = error.hint
    if not hint and isinstance(error, TransientError | OutcomeUnknownError):
        hint = "see whether what did not answer is there, then run the same command again"
    if hint:
        err.say(f"  next: {to_type(hint)}")
    raise typer.Exit(exit_status(error))


def reports_errors(command: Callable[P, T]) -> Callable[P, T]:
    """The process boundary: our errors become a message and an exit status."""

    @functools.wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> T:
        _choice.set(None)
        try:
            return command(*args, **kwargs)
        except EmbedmillError as error:
            fail(error)

    return wrapped
