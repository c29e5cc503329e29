"""Glob patterns over paths relative to a folder."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from embedmill.errors import SourceError

_PART = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


def _part_regex(match: re.Match[str]) -> str:
    part = match.group()
    if part[0] == "*":
        return "[^/]*"
    if part == "?":
        return "[^/]"
    if part[0] != "[" or len(part) == 1:
        return re.escape(part)
    negated, members = part[1] == "!", part[1:-1].removeprefix("!")
    escaped = re.sub(r"([\\\[\]^&~|])", r"\\\1", members)
    return f"(?!/)[{'^' if negated else ''}{escaped}]"


def _component_regex(part: str, *, dotted: bool) -> str:
    guard = "" if dotted or part[:1] not in "*?[" else r"(?!\.)"
    return guard + _PART.sub(_part_regex, part)


def _pattern_regex(pattern: str, *, dotted: bool) -> str:
    name = r"[^/]+" if dotted else r"(?!\.)[^/]+"
    cleaned = pattern.removeprefix("./")
    *folders, last = (cleaned + "**" if cleaned.endswith("/") else cleaned).split("/")
    text = "".join(
        rf"(?:{name}/)*" if part == "**" else _component_regex(part, dotted=dotted) + "/"
        for part in folders
    )
    if last == "**":
        return text + rf"{name}(?:/{name})*"
    return text + _component_regex(last, dotted=dotted)


def _compiled(patterns: Iterable[str], *, dotted: bool, suffix: str = "") -> re.Pattern[str]:
    regexes = [f"(?:{_pattern_regex(pattern, dotted=dotted)})" for pattern in patterns]
    try:
        return re.compile(f"(?s:(?:{'|'.join(regexes) or '(?!)'}){suffix})")
    except re.error as error:
        raise SourceError(
            f"one of the patterns {', '.join(map(repr, patterns))} cannot be read: {error}",
            code="pattern",
            hint="use *, ?, [abc], [!abc] and ** for any number of folders",
        ) from error


@dataclass(frozen=True, slots=True)
class PathPatterns:
    """Which files of a folder are taken.

    The rules are the shell's: ``*`` and ``?`` stay within one name, ``**`` stands for any number of
    folders, case counts, and a wildcard at the start of a name does not match a leading dot: name
    hidden files and folders outright (``.github/**/*.md``). An exclusion also covers hidden names
    and everything below a folder that it matches.
    """

    include: re.Pattern[str]
    exclude: re.Pattern[str]
    hidden_folders: bool

    @classmethod
    def of(cls, include: tuple[str, ...], exclude: tuple[str, ...] = ()) -> Self:
        """Compile the patterns.

        Raises:
            SourceError: a pattern is not a glob (``[z-a]``).
        """
        folders = [pattern.rstrip("/").removesuffix("/**") for pattern in exclude]
        return cls(
            include=_compiled(include, dotted=False),
            exclude=_compiled(folders, dotted=True, suffix="(?:/.*)?"),
            hidden_folders=any("/." in f"/{pattern.removeprefix('./')}" for pattern in include),
        )

    def takes(self, relative: str) -> bool:
        """Whether the file is one of the source's."""
        return bool(self.include.fullmatch(relative)) and not self.exclude.fullmatch(relative)

    def excludes(self, relative: str) -> bool:
        """Whether it is left out although it may match otherwise."""
        return bool(self.exclude.fullmatch(relative))

    def enters(self, relative: str) -> bool:
        """Whether a folder can hold files of the source at all."""
        hidden = relative.rpartition("/")[2].startswith(".")
        return (self.hidden_folders or not hidden) and not self.exclude.fullmatch(relative)
