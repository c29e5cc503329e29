"""The command line: fake providers and stores to rehearse with."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from embedmill.errors import RefusedError
from embedmill.extras import extra
from pipelines.cli_options import reports_errors

# Each has a module embedmill.testing.<name>_server with a main.
FAKES = ("openai", "voyage", "cohere", "qdrant", "pinecone", "weaviate")


@reports_errors
def rehearse(
    *,
    provider: Annotated[
        str, typer.Option("--provider", help=f"Whose fake: {', '.join(FAKES)}.")
    ] = "openai",
    faults: Annotated[
        Path | None, typer.Option("--faults", help="YAML list of what goes wrong, and when.")
    ] = None,
    port: Annotated[int, typer.Option("--port", help="0: any that is free.")] = 8765,
) -> None:
    """Serve a fake provider or store on this machine: rehearse without a key, faults by plan.

    Its first line is its address; Weaviate's has two, REST and gRPC (the port after).
    """
    if provider not in FAKES:
        raise RefusedError(f"there is no fake of {provider!r}; there is: {', '.join(FAKES)}")
    plan = ["--faults", str(faults)] if faults else []
    try:
        with extra("this fake", f"'embedmill[{provider}]'", ("weaviate", "grpc", "grpc_health")):
            fake = import_module(f"embedmill.testing.{provider}_server")
        fake.main(["--port", str(port), *plan])
    except ValueError as error:
        raise RefusedError(f"the plan of faults makes no sense: {error}") from error
    except FileNotFoundError as error:
        raise RefusedError(f"{faults} cannot be read: {error}") from error
    except OSError as error:
        raise RefusedError(
            f"port {port} cannot be served: {error}", hint="add --port 0 for any that is free"
        ) from error
