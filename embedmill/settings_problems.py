"""What is wrong with settings, in the words of the settings file: path, found, allowed, nearest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from embedmill.redaction import redacted
from embedmill.setting_types import NAME_PATTERN, SECRET_PATTERN, Frozen, is_secret
from embedmill.settings import Settings
from embedmill.settings_yaml import Path

# Names that other tools give to the same thing.
_ELSEWHERE_CALLED = {
    "chunk_size": "max_tokens",
    "chunk_overlap": "overlap",
    "dimensions": "dimension",
    "glob": "include",
    "model_name": "model",
    "name": "index",
    "shards": "shard_count",
    "splitter": "chunker",
    "type": "kind",
    "vector_store": "store",
}

_WANTED = {
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "int_parsing_size": "must be a smaller whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "bool_type": "must be true or false",
    "tuple_type": "must be a list",
    "dict_type": "must be a section with keys of its own",
    "model_type": "must be a section with keys of its own",
    "model_attributes_type": "must be a section with keys of its own",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be at least {ge}",
    "less_than": "must be less than {lt}",
    "less_than_equal": "must be at most {le}",
    "too_short": "must have at least {min_length} entry",
    "string_too_short": "must not be empty",
    "literal_error": "must be {expected}",
    "union_tag_invalid": "must be one of {expected_tags}",
}


def section_models(field: FieldInfo) -> tuple[type[Frozen], ...]:
    """Models that a field may hold, one per kind; none for a plain value."""
    return tuple(_models_in(field.annotation))


def _models_in(annotation: object) -> Iterator[type[Frozen]]:
    if isinstance(annotation, type) and issubclass(annotation, Frozen):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def kinds_of(model: type[Frozen]) -> tuple[str, ...]:
    """Values of ``kind`` that choose this model; none where there is no choice."""
    field = model.model_fields.get("kind")
    return get_args(field.annotation) if field else ()


def field_at(path: Path, data: object) -> FieldInfo | None:
    """Find the field behind a path, following the kinds that ``data`` names."""
    model: type[Frozen] | None = Settings
    field = None
    for key in path:
        field = model.model_fields.get(key) if model else None
        data = data.get(key) if isinstance(data, dict) else None
        model = _chosen(section_models(field), data) if field else None
    return field


def _chosen(models: Sequence[type[Frozen]], data: object) -> type[Frozen] | None:
    if len(models) < 2:
        return models[0] if models else None
    kind = data.get("kind") if isinstance(data, dict) else None
    return next((model for model in models if kind in kinds_of(model)), None)


def problems_of(error: ValidationError, data: object) -> list[tuple[Path, str]]:
    """Translate a validation error: (path, what is wrong) per problem."""
    details = error.errors(include_url=False)
    return [(path, _in_words(one, path, data)) for one in details for path in [_path(one)]]


def _path(error: ErrorDetails) -> Path:
    """Return the location without the kinds that the validator puts in after each section."""
    path: list[str] = []
    models: tuple[type[Frozen], ...] = (Settings,)
    skip_kind = False
    for part in error["loc"]:
        if skip_kind:
            models = tuple(model for model in models if part in kinds_of(model))
            skip_kind = False
            continue
        path.append(str(part))
        field = models[0].model_fields.get(str(part)) if models else None
        models = section_models(field) if field else ()
        skip_kind = len(models) > 1
    if error["type"].startswith("union_tag"):
        path.append("kind")
    return tuple(path)


def _in_words(error: ErrorDetails, path: Path, data: object) -> str:
    kind, context = error["type"], error.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(path, data)
    if kind in ("missing", "union_tag_not_found"):
        return _missing(path, data)
    if kind == "string_pattern_mismatch":
        return _not_the_form(context.get("pattern", ""), error["input"])
    if kind not in _WANTED:
        return redacted(error["msg"])
    value = error["input"]
    if kind.startswith("union_tag"):
        value = value.get("kind") if isinstance(value, dict) else value
    wanted = _WANTED[kind].format(**context)
    field = field_at(path, data)
    if field is not None and value in _kinds(field):
        return f"{wanted}, found {_shown(value, field)}; write {{kind: {value}}}"
    return f"{wanted}, found {_shown(value, field)}{_advice(kind, context, value)}"


def _kinds(field: FieldInfo) -> list[str]:
    return [kind for model in section_models(field) for kind in kinds_of(model)]


def _missing(path: Path, data: object) -> str:
    of_kind = path[-1] == "kind"
    field = field_at(path[:-1] if of_kind else path, data)
    if field is None:
        return "is missing"
    kinds = ", ".join(_kinds(field))
    if kinds:
        return f"is missing; allowed: {kinds}" if of_kind else f"is missing; its kinds: {kinds}"
    return f"is missing. {field.description}" if field.description else "is missing"


def _not_the_form(pattern: str, value: object) -> str:
    if pattern == SECRET_PATTERN:
        return (
            "must be ${NAME}, the name of an environment variable, and never the secret itself "
            "(what was found is not shown)"
        )
    if "cuda" in pattern:
        return f"must be auto, cpu, cuda, cuda:N or mps, found {_shown(value, None)}"
    form = (
        "must begin with a letter or digit and hold only letters, digits, `_`, `.`, `-`, at most 64"
        if pattern == NAME_PATTERN
        else f"must match {pattern}"
    )
    return f"{form}, found {_shown(value, None)}"


def _advice(kind: str, context: dict[str, Any], value: object) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "; put it in quotes"
    if kind == "tuple_type" and isinstance(value, str):
        return f"; write {json.dumps([redacted(value)])}"
    if kind in ("literal_error", "union_tag_invalid") and isinstance(value, str):
        allowed = re.findall(r"'([^']*)'", context.get("expected") or context["expected_tags"])
        near = get_close_matches(value, allowed, n=1)
        return f"; did you mean {near[0]}?" if near else ""
    return ""


def _shown(value: object, field: FieldInfo | None) -> str:
    if field is not None and is_secret(field):
        return "something that is not shown"
    if isinstance(value, str):
        text = redacted(value)
        return f"the text {text[:60]!r}" + ("..." if len(text) > 60 else "")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    return "nothing" if value is None else "a section" if isinstance(value, dict) else "a list"


def _unknown_key(path: Path, data: object) -> str:
    *section, key = path
    siblings: tuple[type[Frozen], ...] = (Settings,)
    field = field_at(tuple(section), data) if section else None
    if section:
        siblings = section_models(field) if field else ()
    model = _chosen(siblings, _at(section, data)) if section else Settings
    known = list(model.model_fields) if model else []
    hints = _belongs(key, section, model, siblings)
    near = _nearest(key, known)
    # A slip of one letter is likelier than another kind that happens to have the very name.
    if near and (not hints or get_close_matches(key, [near], cutoff=0.9)):
        hints = [f"did you mean `{near}`?"]
    return " ".join(["unknown key;", *hints, f"known here: {', '.join(known)}"])


def _at(path: Sequence[str], data: object) -> object:
    for key in path:
        data = data.get(key) if isinstance(data, dict) else None
    return data


def _nearest(key: str, known: Sequence[str]) -> str | None:
    names = {name: name for name in known}
    names |= {other: name for other, name in _ELSEWHERE_CALLED.items() if name in names}
    near = get_close_matches(key.lower().replace("-", "_"), names, n=1)
    return names[near[0]] if near else None


def _belongs(
    key: str, section: list[str], model: type[Frozen] | None, siblings: Sequence[type[Frozen]]
) -> list[str]:
    """Say where the very same name is at home: another kind of this section, or another level."""
    kinds = [k for other in siblings if other is not model for k in _kinds_with(key, other)]
    if kinds and model:
        here = ".".join(section)
        return [
            f"`{key}` belongs to {here} of kind {' or '.join(kinds)}; to change the kind, give the "
            f"whole section: --set {here}='{{kind: {kinds[0]}, ...}}';"
        ]
    places = [place for place in _places(key) if place != ".".join(section)]
    if not places:
        return []
    return [f"`{key}` belongs {' or '.join(_spoken(place) for place in places)};"]


def _kinds_with(key: str, model: type[Frozen]) -> tuple[str, ...]:
    return kinds_of(model) if key in model.model_fields else ()


def _places(key: str) -> list[str]:
    top = [""] if key in Settings.model_fields else []
    return top + [
        name
        for name, field in Settings.model_fields.items()
        if any(key in model.model_fields for model in section_models(field))
    ]


def _spoken(place: str) -> str:
    return f"under `{place}`" if place else "at the top level"
