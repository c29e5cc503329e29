"""The command that looks whether this machine is fit, and how fast it embeds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from embedmill.errors import SettingsError
from embedmill.settings import SentenceTransformersSettings, Settings
from pipelines.cli_options import (
    FAILED,
    JsonOption,
    NamedConfigOption,
    SetOption,
    out,
    reports_errors,
    settings_from,
    settings_path,
)
from pipelines.cli_reading import print_json

if TYPE_CHECKING:
    from pipelines.doctor import Finding
    from pipelines.doctor_bench import Rate

_HEADINGS = (
    "backend   dtype     processes x threads, streams  texts/s   CPU ms a text  MiB  least cosine"
)
_SIGNS = {"ok": "ok  ", "note": "note", "bad": "BAD "}


@reports_errors
def doctor(
    config: Annotated[
        Path | None, typer.Argument(help="Settings file: look at its model and stores as well.")
    ] = None,
    *,
    named: NamedConfigOption = None,
    bench: Annotated[
        bool,
        typer.Option(
            "--bench",
            help="Measure backends and divisions of the cores on this machine, and keep what is "
            "fastest for its runs; takes some minutes.",
        ),
    ] = False,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look whether everything is here: cores, extras, GPU, and an index's model and stores.

    Ends with status 5 when something is bad; every finding says what to type.
    """
    from pipelines.doctor import examine_index, examine_machine

    file = settings_path(config, named) if config or named else None
    settings = settings_from(file, overrides) if file else None
    found = [*examine_machine(), *(examine_index(settings) if settings else ())]
    rates: list[Rate] = []
    if not as_json:
        _show(found)
    if bench:
        rates = _measure(settings, show=not as_json)
    if as_json:
        print_json({"findings": list(map(asdict, found)), "bench": list(map(asdict, rates))})
    raise typer.Exit(FAILED if any(each.verdict == "bad" for each in found) else 0)


def _show(found: Iterable[Finding]) -> None:
    for each in found:
        out.say(f"{_SIGNS[each.verdict]} {each.topic:14} {each.text}")
        if each.remedy:
            out.say(f"     {'':14} next: {each.remedy}")


def _measure(settings: Settings | None, *, show: bool) -> list[Rate]:
    from pipelines.doctor_bench import MINILM, measured, variants

    chosen = MINILM
    if settings is not None:
        if not isinstance(settings.embedder, SentenceTransformersSettings):
            raise SettingsError(
                f"--bench measures local models, and embedder.kind is {settings.embedder.kind}"
            )
        chosen = settings.embedder
    rates: list[Rate] = []
    if show:
        out.say(f"\n{chosen.model}: texts of 60 to 240 words, median of rounds (slowest-fastest)")
        out.say(_HEADINGS)
    for rate in measured(chosen, variants(chosen)):
        rates.append(rate)
        if show:
            out.say(_row(rate))
    said = _kept(chosen, rates)
    if show:
        out.say(said)
    return rates


def _kept(settings: SentenceTransformersSettings, rates: list[Rate]) -> str:
    """Keep the measurements for this machine's runs; say what these do from now on."""
    from pipelines.doctor_bench import chosen_layout, keep

    best = _fastest(rates)
    if best is None:
        return "nothing could be measured"
    file = keep(settings, rates)
    variant = best.variant
    layout = chosen_layout(settings, variant.backend, variant.dtype)
    assert layout is not None
    return (
        f"fastest at float32's vectors: {variant.backend} in {variant.dtype}; chosen for runs on "
        f"this machine: {layout.processes} processes of {layout.threads} threads, "
        f"{layout.streams} streams each\nkept in {file}"
    )


def _row(rate: Rate) -> str:
    variant = rate.variant
    division = f"{variant.processes} x {variant.threads}, {variant.streams}"
    name = f"{variant.backend:9} {variant.dtype:9} {division:28}"
    if rate.error:
        return f"{name} not measured: {rate.error}"
    slowest, fastest = rate.spread
    figures = f"{rate.texts_per_s:8.1f} ({slowest:.1f}-{fastest:.1f})"
    return f"{name} {figures:20} {rate.cpu_ms:9.1f} {rate.memory / 2**20:8.0f} {rate.cosine:9.5f}"


def _fastest(rates: Iterable[Rate]) -> Rate | None:
    """Of those that keep float32's vectors."""
    near = [each for each in rates if not each.error and each.variant.dtype != "int8"]
    return max(near, key=lambda each: each.texts_per_s, default=None)
