"""Commands that read: search, status, settings."""

from __future__ import annotations

from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from embedmill.assembly import recipes_of
from embedmill.errors import SettingsError
from embedmill.index_reader import open_index
from embedmill.payload import Filter, Scalar
from embedmill.vector_store import Hit
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    out,
    reports_errors,
    settings_from,
)
from pipelines.terminal import visible

_SNIPPET = 200
# What every hit has beside the document's own metadata.
_OF_PAYLOAD = {"doc_id", "chunk_index", "text", "start", "end", "headings", "uri", "partial"}


@reports_errors
def search(
    query: Annotated[str, typer.Argument(help="What to look for, in plain words.")],
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    k: Annotated[int, typer.Option("-k", min=1, max=100_000, help="How many hits.")] = 5,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE",
            help="Only hits with this value: --where doc_id=a.md, --where metadata.year=2024. A "
            "value that reads as a number or a truth value is compared as both. Repeatable: all "
            "keys must hold, and of several values for one key any.",
        ),
    ] = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Search the published version of an index."""
    conditions = _filter(where or [])
    with open_index(settings_from(config, overrides, index)) as reader:
        hits = reader.search(query, k, conditions)
    if as_json:
        print_json([_hit_json(hit) for hit in hits])
        return
    if not hits:
        out.print("no hits")
        for key in sorted((conditions or {}).keys() - _OF_PAYLOAD):
            if not key.startswith("metadata."):
                out.say(f"  note: no hit has {key!r}; a document's own is metadata.{key}")
    for rank, hit in enumerate(hits, start=1):
        _print_hit(rank, hit)


def _filter(where: list[str]) -> Filter | None:
    pairs = [condition.partition("=") for condition in where]
    for key, sign, _ in pairs:
        if not key or not sign:
            raise SettingsError("--where takes KEY=VALUE, for instance --where doc_id=guide/a.md")
    conditions: dict[str, list[Scalar]] = {}
    for key, _, value in pairs:
        conditions.setdefault(key, []).extend(_readings(value))
    return conditions or None


def _readings(text: str) -> list[Scalar]:
    """What a person may mean by a value: the text, and the number or truth value it spells."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return [text]
    return [text, value] if isinstance(value, bool | int | float) else [text]


def _hit_json(hit: Hit) -> dict[str, Any]:
    return {"id": str(hit.id), "score": hit.score, **hit.payload}


def _print_hit(rank: int, hit: Hit) -> None:
    payload = hit.payload
    place = " > ".join(payload["headings"]) or f"characters {payload['start']}-{payload['end']}"
    name, where = (visible(text).replace("\n", r"\n") for text in (payload["doc_id"], place))
    line = Text.assemble(f"{rank}. {hit.score:.3f}  ", (name, "bold"), "  ", (where, "dim"))
    out.print(line, soft_wrap=True)
    snippet = " ".join(payload["text"].split())
    cut = snippet if len(snippet) <= _SNIPPET else snippet[:_SNIPPET].rsplit(" ", 1)[0] + " ..."
    out.say(f"   {cut}")


@reports_errors
def show_recipes(*, config: ConfigOption = DEFAULT_CONFIG, overrides: SetOption = None) -> None:
    """Show the effective settings, every default included, and the recipes they stand for."""
    from embedmill.settings_file import effective_settings

    settings = settings_from(config, overrides)
    out.say(effective_settings(settings).rstrip())
    chunking, embedding = recipes_of(settings)
    out.say(f"# chunking recipe: {chunking.id}")
    out.say(f"# embedding recipe: {embedding.id}")


def print_json(value: object) -> None:
    """Print one JSON value on standard output."""
    option = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
    out.write(orjson.dumps(value, option=option).decode())
