"""The commands ``embedmill evaluate``, ``contract`` and ``check-query``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.table import Table
from rich.text import Text

from embedmill.assembly import workspace_of
from embedmill.canary import CANARY_TEXTS
from embedmill.errors import RefusedError, SettingsError
from embedmill.evaluation_plot import Measure, measures
from embedmill.gate import GateResult, failed_gates
from embedmill.manifest import Manifest
from embedmill.own_folders import require_not_read
from embedmill.query_contract import Parity, QueryContract, contract_of, held_against
from embedmill.query_services import query_service
from embedmill.settings import Settings
from pipelines.cli_options import (
    FINDINGS,
    OK,
    ConfigArgument,
    IndexOption,
    JsonOption,
    NamedConfigOption,
    SetOption,
    VerboseOption,
    VersionOption,
    configure_logging,
    err,
    out,
    print_lines,
    reports_errors,
    settings_from,
    settings_path,
    to_type,
    version_number,
)
from pipelines.cli_reading import print_json
from pipelines.evaluate import Evaluation, evaluate

_MARKS = {
    "passed": "[green]passed[/]",
    "failed": "[bold red]FAILED[/]",
    "not-applicable": "[dim]-[/]",
}
# Characters of the longest bar.
_BAR = 8


@reports_errors
def evaluate_command(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    version: VersionOption = None,
    queries: Annotated[
        Path | None, typer.Option("--queries", help="JSON lines with _id and text.")
    ] = None,
    qrels: Annotated[
        Path | None, typer.Option("--qrels", help="query, document, grade; separated by tabs.")
    ] = None,
    plot: Annotated[Path | None, typer.Option("--plot", help="Write the plot here (SVG).")] = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Hold a version against all gates: books, vectors, quality. Exit status 7: a gate failed."""
    configure_logging(verbose=verbose)
    settings = settings_from(settings_path(config, named), overrides, index)
    if queries is not None or qrels is not None:
        settings = _with_labels(settings, queries=queries, qrels=qrels)
    if plot is not None:
        require_not_read(settings, str(plot))
    with err.status("evaluating") as status:
        found = evaluate(
            settings,
            version=version_number(version),
            on_gate=lambda name: status.update(f"evaluating: {name}"),
        )
    if plot is not None:
        _write(plot, found.svg())
    if as_json:
        print_json(found.to_json())
    else:
        _print(found)
    raise typer.Exit(OK if found.passed else FINDINGS)


def _with_labels(settings: Settings, **files: Path | None) -> Settings:
    given = {key: str(path) for key, path in files.items() if path is not None}
    gates = settings.gates.model_copy(update=given)
    if (gates.queries is None) != (gates.qrels is None):
        raise SettingsError("--queries and --qrels go together")
    return settings.model_copy(update={"gates": gates})


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, "utf-8")
    except OSError as error:
        raise RefusedError(f"{path} cannot be written: {error.strerror}") from error


def _print(found: Evaluation) -> None:
    against = f", against {found.against} (published)" if found.against else ""
    out.say(f"index {found.index} {found.version}{against}")
    out.print(gates_table(found.results), highlight=False)
    rows = measures(found.results)
    if rows:
        out.print(_figures_table(rows, found.against), highlight=False)
    failed = failed_gates(found.results)
    if failed:
        names = ", ".join(result.name for result in failed)
        out.say(f"{found.version} is not fit to be published: {names}")
        if found.beside:
            out.say(f"a run goes on ({found.beside}): what lacks may come with it; look again then")
    else:
        out.say(f"{found.version} passes every gate")


def gates_table(results: tuple[GateResult, ...]) -> Table:
    """The verdicts, one line each."""
    table = Table(box=None, show_header=False, padding=(0, 1))
    for result in results:
        table.add_row(_MARKS[result.verdict], result.name, Text(to_type(result.message)))
    return table


def _figures_table(rows: list[Measure], against: str | None) -> Table:
    table = Table(box=None, padding=(0, 1))
    for title in ("figure", "", "now", *(["before", "change, 95 % interval"] if against else [])):
        table.add_column(title, no_wrap=True)
    table.add_column("at least", justify="right")
    for row in rows:
        cells = [row.label, _bar(row.now), f"{row.now:.4f}"]
        if against is not None:
            cells.append("" if row.before is None else f"{row.before:.4f}")
            cells.append(
                "" if row.delta is None else "{:+.3f} ({:+.3f}, {:+.3f})".format(*row.delta)
            )
        table.add_row(*cells, "" if row.least is None else f"{row.least:g}")
    return table


def _bar(value: float) -> str:
    full, rest = divmod(round(8 * _BAR * min(1.0, max(0.0, value))), 8)
    return "█" * full + " ▏▎▍▌▋▊▉"[rest].strip()


@reports_errors
def contract_command(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    version: VersionOption = None,
    index: IndexOption = None,
    overrides: SetOption = None,
) -> None:
    """Print the query contract of the published version: what a search service must do."""
    settings = settings_from(settings_path(config, named), overrides, index)
    print_json(_contract(settings, version).to_json())


@reports_errors
def check_query(
    config: ConfigArgument = None,
    *,
    named: NamedConfigOption = None,
    embedder: Annotated[
        str,
        typer.Option(
            "--embedder",
            help="What embeds queries: http://HOST/v1 (OpenAI's language), http://HOST/embed (Text "
            "Embeddings Inference), or python:MODULE:FUNCTION.",
        ),
    ],
    version: VersionOption = None,
    least: Annotated[
        float, typer.Option("--min-cosine", min=0.0, max=1.0, help="That counts as the same.")
    ] = 0.999,
    one_by_one: Annotated[
        bool, typer.Option("--one-by-one", help="It takes one text at a time.")
    ] = False,
    key_variable: Annotated[
        str | None,
        typer.Option("--key-variable", help="Environment variable with the service's key."),
    ] = None,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Does a search service embed queries as the index expects? Exit status 7: it does not."""
    settings = settings_from(settings_path(config, named), overrides, index)
    contract = _contract(settings, version)
    texts = {name: CANARY_TEXTS[name] for name in contract.canary.queries}
    model = contract.canary.recipe.model
    service = query_service(embedder, model=model, key_variable=key_variable, one_by_one=one_by_one)
    answers = dict(zip(texts, service(list(texts.values())), strict=True))
    parity = held_against(contract, answers, least=least)
    if as_json:
        print_json(_parity_json(contract, parity))
    else:
        _print_parity(contract, embedder, parity)
    raise typer.Exit(FINDINGS if parity.differences else OK)


def _contract(settings: Settings, name: str | None) -> QueryContract:
    number = version_number(name)
    workspace = workspace_of(settings)
    state = Manifest(workspace, settings.index).read()
    version = state.published if number is None else state.version(number)
    if version is None:
        raise RefusedError(
            f"index {settings.index!r} has no published version",
            hint="run embedmill ingest SETTINGS to its end first, or say which with --version",
        )
    return contract_of(workspace, settings.index, version)


def _parity_json(contract: QueryContract, parity: Parity) -> dict[str, object]:
    return {
        "index": contract.index,
        "version": contract.version,
        "same": not parity.differences,
        "cosines": dict(parity.cosines),
        "differences": [
            {"field": each.field, "text": each.text, "detail": each.detail}
            for each in parity.differences
        ],
        "notes": list(parity.notes),
    }


def _print_parity(contract: QueryContract, embedder: str, parity: Parity) -> None:
    what = f"{contract.version} of index {contract.index} ({contract.canary.recipe.id})"
    if not parity.differences:
        least = min(parity.cosines.values(), default=float(np.nan))
        out.say(f"{embedder} embeds queries as {what} expects: cosine at least {least:.6f}")
    else:
        out.say(f"{embedder} does not embed queries as {what} expects:")
    print_lines(
        f"  {each.field}: {f'text {each.text!r}: ' if each.text else ''}{each.detail}"
        for each in parity.differences
    )
    print_lines(f"  note: {note}" for note in parity.notes)
