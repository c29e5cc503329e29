"""What the settings of all embedders behind somebody's server have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Protocol

from pydantic import Field
from pydantic_core import PydanticCustomError

from embedmill.setting_types import NonEmpty

# How a provider encodes vectors; see embedmill.vector_encoding.
VectorType = Literal["float", "int8", "uint8", "binary", "ubinary"]
Timeout = Annotated[float, Field(gt=0, description="Silence after which a request counts as lost.")]
RequestsAtATime = Annotated[
    int,
    Field(
        gt=0,
        le=256,
        description="Requests of one worker that wait for the provider at a time. For it a worker "
        "has up to 16 segments in hand (with `--local` a single one): where these have fewer "
        "requests, make `run.segment_chunks` larger.",
    ),
]
Tokenizer = Annotated[
    NonEmpty,
    Field(
        description="How tokens are counted: `estimate` (a cautious guess from the bytes of a "
        "text; chunks come out shorter than they might), the path of a `tokenizer.json`, an "
        "encoding of tiktoken by name (downloaded at first use), or the path of a `.tiktoken` "
        "file of cl100k_base.",
    ),
]
Revision = Annotated[
    NonEmpty,
    Field(
        description="State of the model. Providers have none to name; for a server of your own "
        "change this word whenever its weights change: it is part of the recipe.",
    ),
]
KnownDimensions = Annotated[
    int | None,
    Field(
        gt=0,
        description="Components of a vector; without it what the model has. Must be given for a "
        "model that embedmill does not know, and is then asked for.",
    ),
]
Window = Annotated[
    int | None,
    Field(
        gt=0,
        description="Window: a longer text is cut. Without it the model's own; must be given for a "
        "model that embedmill does not know.",
    ),
]
SentType = Annotated[
    VectorType,
    Field(
        description="What the server sends. `int8`, `uint8`, `binary` and `ubinary` are coarser "
        "and smaller on the wire; what is stored are floats of norm 1 in any case.",
    ),
]


class KnownModel(Protocol):
    """What is known of a provider's model."""

    @property
    def dimensions(self) -> tuple[int, ...]:
        """Lengths that its vectors may have."""
        ...


def require_known_model(
    model: str,
    dimensions: int | None,
    max_tokens: int | None,
    known: Mapping[str, KnownModel],
) -> None:
    """Make sure that a model is known or described, and has vectors of this length.

    Raises:
        PydanticCustomError: it is not so.
    """
    one = known.get(model)
    if one is None:
        if dimensions is None or max_tokens is None:
            raise PydanticCustomError(
                "model",
                "{model} is not known: dimensions and max_tokens must be given with it "
                "(known: {known})",
                {"model": model, "known": ", ".join(known)},
            )
    elif dimensions not in {None, *one.dimensions}:
        raise PydanticCustomError(
            "dimensions",
            "{model} has {dimensions} dimensions, not {given}",
            {
                "model": model,
                "dimensions": " or ".join(map(str, one.dimensions)),
                "given": dimensions,
            },
        )
