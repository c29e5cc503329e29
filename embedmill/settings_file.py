"""From a settings file and ``--set`` overrides to settings, with every problem said at once."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from operator import itemgetter
from pathlib import Path

from pydantic import ValidationError

from embedmill.errors import SettingsError
from embedmill.redaction import redacted
from embedmill.setting_types import SECRET_PATTERN
from embedmill.settings import Settings
from embedmill.settings_problems import field_at, problems_of, section_models
from embedmill.settings_yaml import Path as KeyPath
from embedmill.settings_yaml import YamlText, dump_yaml, parse_yaml, scalar_or_flow

_HINT = "docs/configuration.md lists every setting"
# Stands for a line: problems are said in the file's order, those of overrides last.
_OVERRIDES = sys.maxsize


def load_settings(path: Path, overrides: Sequence[str] = ()) -> Settings:
    """Read settings from a YAML file.

    Paths in the settings are relative to the current directory, not to the file.

    Args:
        path: the file.
        overrides: ``a.b.c=value`` each, later ones win. What begins with one of ``[ { " '`` is
            YAML (``source={kind: files, path: docs}`` replaces the whole section), anything else
            one scalar as it stands. Nothing after the ``=`` is the empty text.

    Raises:
        SettingsError: with one line per problem: file and line (or ``--set``), dotted path, what
            was found, what is allowed. No secret is repeated.
    """
    text = parse_yaml(_bytes_of(path))
    draft = _Draft(str(path), text)
    for override in overrides:
        draft.override(override)
    return draft.settings()


def effective_settings(settings: Settings) -> str:
    """Return the values in effect as YAML, defaults included; secrets by name only.

    :func:`load_settings` reads it back as equal settings.
    """
    return dump_yaml(settings.model_dump(mode="json"))


def missing_secrets(settings: Settings, sections: set[str] | None = None) -> list[str]:
    """Names of the environment variables that the settings refer to and that are not set.

    Args:
        settings: of an index.
        sections: to look at; all without it.
    """
    names = _variables(settings.model_dump(mode="json", include=sections))
    return [name for name in dict.fromkeys(names) if not os.environ.get(name)]


def require_secrets(settings: Settings) -> None:
    """See that what a run needs from the environment is there, before any work is done.

    Raises:
        SettingsError: variables of the workspace, the embedder or the store are not set.
    """
    unset = missing_secrets(settings, {"workspace", "embedder", "store"})
    if unset:
        raise SettingsError(
            f"not set in the environment, and the settings refer to it: {', '.join(unset)}",
            hint="; ".join(f"export {name}=..." for name in unset),
        )


def resolve_secret(ref: str) -> str:
    """Return what the environment variable behind ``${NAME}`` holds.

    Raises:
        SettingsError: the variable is not set or empty, or ``ref`` is no such reference.
    """
    if not re.fullmatch(SECRET_PATTERN, ref):
        raise SettingsError("a secret must be given as ${NAME}, the name of a variable")
    name = ref[2:-1]
    value = os.environ.get(name)
    if not value:
        raise SettingsError(
            f"the environment variable {name} is not set, and the settings refer to it",
            hint=f"export {name}=...",
        )
    return value


def _variables(value: object) -> list[str]:
    # Validation lets a variable stand nowhere but in a secret.
    if isinstance(value, dict):
        return [name for part in value.values() for name in _variables(part)]
    if isinstance(value, str) and re.fullmatch(SECRET_PATTERN, value):
        return [value[2:-1]]
    return []


def _bytes_of(path: Path) -> bytes:
    if path.is_dir():
        raise SettingsError(
            f"{path}: is a folder, not a settings file{_files_beside(path)}",
            hint="name the file; a folder of documents is given with --source",
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        beside = _files_beside(path.parent)
        raise SettingsError(
            f"{path}: there is no such file{beside}",
            hint="name one with --config, or begin with a copy of configs/folder.yaml",
        ) from None
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from error


def _files_beside(folder: Path) -> str:
    try:
        files = sorted(str(p) for p in folder.iterdir() if p.suffix in (".yaml", ".yml"))
    except OSError:
        return ""
    return f"; there are: {', '.join(files[:10])}" if files else ""


class _Draft:
    """Settings on their way to validation: values, where each comes from, what is wrong so far."""

    def __init__(self, name: str, text: YamlText) -> None:
        self._name = name
        self._overridden: list[KeyPath] = []
        self._lines = text.lines
        self._problems: list[tuple[int, str]] = []
        for path, line, what in text.problems:
            self._problem(path, what, line)
        self._data: dict[str, object] = {}
        if isinstance(text.value, dict):
            self._data = _normalised(text.value)
        elif not text.problems:
            held = "is empty" if text.value is None else "holds no settings"
            self._problem((), f"{held}; expected keys such as `index: my-docs`", 0)
        self._whole = not self._problems or bool(self._data)

    def override(self, text: str) -> None:
        dotted, equals, typed = text.partition("=")
        path = tuple(part.strip() for part in dotted.split("."))
        if not equals or not all(path):
            self._problem((), f"{redacted(text)!r} must have the form a.b.c=value", _OVERRIDES)
            return
        parsed = scalar_or_flow(typed)
        for inner, _, what in parsed.problems:
            self._problem((*path, *inner), f"{what}; put the value in quotes", _OVERRIDES)
        if not parsed.problems:
            self._put(path, parsed.value)

    def _put(self, path: KeyPath, value: object) -> None:
        section = self._data
        for depth, key in enumerate(path[:-1], start=1):
            inner = section.setdefault(key, {})
            if not isinstance(inner, dict):
                held = "a list; set it as a whole" if isinstance(inner, list) else "a single value"
                self._problem(path, f"{'.'.join(path[:depth])} is {held}", _OVERRIDES)
                return
            section = inner
        section[path[-1]] = value
        self._overridden.append(path)
        self._data = _normalised(self._data)

    def settings(self) -> Settings:
        """Validate; raise with everything that was found."""
        found: list[tuple[KeyPath, str]] = []
        if self._whole:
            try:
                settings = Settings.model_validate_json(json.dumps(self._data))
            except ValidationError as error:
                found = problems_of(error, self._data)
        for path, what in found:
            self._problem(path, what, self._line_of(path))
        if self._problems:
            raise SettingsError(
                "\n".join(text for _, text in sorted(self._problems, key=itemgetter(0))), hint=_HINT
            )
        return settings

    def _problem(self, path: KeyPath, what: str, line: int) -> None:
        origin = "--set" if line == _OVERRIDES else f"{self._name}:{line}" if line else self._name
        where = f"{origin}: {'.'.join(path)}" if path else origin
        self._problems.append((line, f"{where}: {what}"))

    def _line_of(self, path: KeyPath) -> int:
        if any(path[: len(one)] == one for one in self._overridden):
            return _OVERRIDES
        # A section that only an override made.
        if path not in self._lines and any(one[: len(path)] == path for one in self._overridden):
            return _OVERRIDES
        known = (path[:n] for n in range(len(path), 0, -1))
        return next((self._lines[part] for part in known if part in self._lines), 0)


def _normalised(data: dict[str, object]) -> dict[str, object]:
    """Write the short form of the workspace out; leave out sections that hold nothing."""
    result: dict[str, object] = {}
    for key, value in data.items():
        if key == "workspace" and isinstance(value, str):
            result[key] = {"url": value}
            continue
        field = field_at((key,), data)
        if value is None and field is not None and section_models(field):
            continue
        result[key] = value
    return result
