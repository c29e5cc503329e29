"""The command line: what can stand in settings, adapters of other packages included."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Annotated

import orjson
import typer
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from embedmill.errors import SettingsError
from embedmill.plugins import installed, plugin_problems
from embedmill.setting_types import Frozen
from embedmill.settings import Settings
from embedmill.settings_problems import kinds_of, section_models
from pipelines.cli_options import err, out, reports_errors


def kinds_help() -> str:
    """What the command does, with the adapters that are installed beside embedmill's own."""
    others = ", ".join(f"{kind} ({section})" for section, kind, _ in installed())
    more = f" Installed beside embedmill's own: {others}." if others else ""
    return f"List the kinds of sources, chunkers, embedders and stores, or the keys of one.{more}"


@reports_errors
def kinds(
    kind: Annotated[str | None, typer.Argument(help="Show the keys of this kind.")] = None,
) -> None:
    """List the kinds of each section of the settings, or the keys of one."""
    for problem in plugin_problems():
        err.say(f"an installed adapter cannot be used: {problem}")
    chosen = [one for one in _all_kinds() if kind in (None, one[1])]
    if not chosen:
        known = ", ".join(name for _, name, _ in _all_kinds())
        raise SettingsError(
            f"there is no kind {kind!r}; there is: {known}", hint="embedmill kinds tells them apart"
        )
    for section, name, model in chosen:
        out.say(f"{section + ':':10}{name:22} {_first_line(model)}{_package(section, name)}")
        if kind is not None:
            _keys(model)


# As it is now: an adapter may have been installed beside embedmill's own.
kinds.__doc__ = kinds_help()


def _all_kinds() -> Iterator[tuple[str, str, type[Frozen]]]:
    for section, field in Settings.model_fields.items():
        for model in section_models(field):
            for name in kinds_of(model):
                yield section, name, model


def _keys(model: type[Frozen]) -> None:
    for name, field in model.model_fields.items():
        if name != "kind":
            out.say(f"  {name} ({_default(field)}): {field.description or ''}".rstrip(": "))


def _default(field: FieldInfo) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if isinstance(field.default, Frozen):
        return "a section"
    # As it would stand in the settings.
    return f"default {orjson.dumps(field.default).decode()}"


def _first_line(model: type[Frozen]) -> str:
    return inspect.cleandoc(model.__doc__ or "").partition("\n")[0]


def _package(section: str, name: str) -> str:
    packages = {(where, kind): package for where, kind, package in installed()}
    package = packages.get((section, name))
    return f" [{package}]" if package else ""
