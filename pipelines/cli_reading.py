"""Commands that read: search, status, settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any

import orjson
import typer
from rich.text import Text

from embedmill.assembly import recipes_of, workspace_of
from embedmill.errors import SettingsError
from embedmill.index_reader import open_index
from embedmill.job_assembly import unneeded_jobs
from embedmill.job_summary import unneeded_line
from embedmill.lease import in_use_by
from embedmill.manifest import Manifest
from embedmill.payload import Filter, Scalar
from embedmill.run_report import RunReport, read_reports
from embedmill.settings import Settings
from embedmill.vector_store import Hit
from embedmill.work_left import WorkLeft, work_left
from embedmill.workspace import Workspace
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    out,
    print_lines,
    reports_errors,
    settings_from,
    to_type,
)
from pipelines.summary import fills, summary
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
def status(
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the last run of an index and the work that is left."""
    settings = settings_from(config, overrides, index)
    workspace = workspace_of(settings)
    left = _work_left(settings, workspace)
    useless = _unneeded_jobs(settings, workspace)
    runs = _last_runs(workspace, settings.index)
    by = in_use_by(workspace, settings.index)
    if as_json:
        run, report = runs[-1] if runs else ("", None)
        shown = report and report.to_json()
        print_json(
            {
                "run": run,
                "report": shown,
                "left": asdict(left),
                "unneeded_jobs": useless,
                "in_use_by": by,
            }
        )
        return
    if not runs:
        out.say(f"index {settings.index!r} has had no run yet")
        return
    for run, report in runs:
        print_lines(map(to_type, _ended(run, by) if report is None else _told(report)))
    waiting = str(left) if left else "no segments between the layers"
    out.say(f"left: {waiting}")
    if useless:
        print_lines([to_type(unneeded_line(useless))])
    well = all(report and report.status in {"succeeded", "partial"} for _, report in runs)
    if not by and (left or not well):
        out.say(f"  next: run the same ingest again{_how(runs[-1][1])}")


def _how(last: RunReport | None) -> str:
    """How what is not finished is finished."""
    if last is not None and last.status == "failed" and last.documents.withheld:
        return " with --allow-deletes, if so many documents are gone"
    return "; it goes on where it stopped"


def _last_runs(workspace: Workspace, index: str) -> list[tuple[str, RunReport | None]]:
    """The last run that filled the index, or has not ended well, and what was run since."""
    last = []
    for run, report in read_reports(workspace, index):
        last.append((run, report))
        if report is None or fills(report):
            break
    return last[::-1]


def _ended(run: str, by: str) -> list[str]:
    """Of a run without a report."""
    if by:
        return [f"run        {run} goes on: {by}"]
    return [f"run        {run} was killed: it has not ended, and nobody works on the index"]


def _told(report: RunReport) -> Iterator[str]:
    """Its summary, without what is told as it is now."""
    return summary(replace(report, unneeded_jobs=()))


def _unneeded_jobs(settings: Settings, workspace: Workspace) -> Sequence[dict[str, Any]]:
    """Of the version that an ingest continues."""
    version = Manifest(workspace, settings.index).read().current
    return () if version is None else unneeded_jobs(settings, version, workspace)


def _work_left(settings: Settings, workspace: Workspace) -> WorkLeft:
    """Of the version that an ingest continues."""
    version = Manifest(workspace, settings.index).read().current
    if version is None:
        return WorkLeft(0, 0)
    return work_left(workspace, settings.index, version)


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
