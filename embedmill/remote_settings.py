"""What the settings of all embedders behind somebody's server have in common."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from embedmill.setting_types import NonEmpty

# How a provider encodes vectors; see embedmill.vector_encoding.
VectorType = Literal["float", "int8", "uint8", "binary", "ubinary"]
Timeout = Annotated[float, Field(gt=0, description="Silence after which a request counts as lost.")]
RequestsAtATime = Annotated[
    int,
    Field(
        gt=0,
        le=256,
        description="Requests of one worker that wait for the provider at a time, in one segment; "
        "`run.segment_chunks` has to be as many times `inputs_per_request` for all to be used.",
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
