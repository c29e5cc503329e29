"""The command line: fake providers and stores to rehearse with."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from embedmill.errors import RefusedError
from embedmill.extras import extra
from embedmill.testing.fake_server import why_not_served
from pipelines.cli_options import reports_errors

# Each has a module embedmill.testing.<name>_server with a main. The providers know rate limits.
PROVIDERS = ("openai", "voyage", "cohere")
FAKES = (*PROVIDERS, "qdrant", "pinecone", "weaviate")
RateLimit = Annotated[
    int | None,
    typer.Option(min=1, help="Of direct requests to a provider; what is more is refused (429)."),
]


@reports_errors
def rehearse(
    *,
    provider: Annotated[
        str, typer.Option("--provider", help=f"Whose fake: {', '.join(FAKES)}.")
    ] = "openai",
    faults: Annotated[
        Path | None, typer.Option("--faults", help="YAML list of what goes wrong, and when.")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="0: any that is free.")
    ] = 8765,
    requests_per_minute: RateLimit = None,
    tokens_per_minute: RateLimit = None,
    inputs_per_minute: RateLimit = None,
) -> None:
    """Serve a fake provider or store on this machine: rehearse without a key, faults by plan.

    Its first line is its address; Weaviate's has two, REST and gRPC (the port after).
    """
    if provider not in FAKES:
        raise RefusedError(f"there is no fake of {provider!r}; there is: {', '.join(FAKES)}")
    plan = ["--faults", str(faults)] if faults else []
    limits = _limits(
        provider, requests=requests_per_minute, tokens=tokens_per_minute, inputs=inputs_per_minute
    )
    with extra("this fake", f"'embedmill[{provider}]'", ("weaviate", "grpc", "grpc_health")):
        fake = import_module(f"embedmill.testing.{provider}_server")
        try:
            fake.main(["--port", str(port), *plan, *limits])
        except (ValueError, OSError) as error:
            raise why_not_served(error) from error


def _limits(provider: str, **limits: int | None) -> list[str]:
    given = [
        word
        for name, limit in limits.items()
        if limit is not None
        for word in (f"--{name}-per-minute", str(limit))
    ]
    if given and provider not in PROVIDERS:
        raise RefusedError(
            f"the fake of {provider} has no limits by the minute; those of "
            f"{', '.join(PROVIDERS)} have"
        )
    return given
