"""Settings of the gates: what a version must show before readers are sent to it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty


class GateSettings(Frozen):
    """What a version must show before readers are sent to it.

    The defaults let a healthy version through, a first one and a small one too; they stop vectors
    that were mixed up, made by another model, collapsed or lost.
    """

    sample: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="Chunks that are read back, embedded again and searched for; the same ones for "
        "the same index.",
    )
    max_dead_share: float = Field(
        default=0.05, ge=0, le=1, description="Of documents, and of chunks, that may lack records."
    )
    tolerated_dead: int = Field(
        default=10, ge=0, description="So many may lack records whatever share they are."
    )
    max_mean_cosine: float = Field(
        default=0.98,
        ge=-1,
        le=1,
        description="Between the vectors of different texts, on average; above, they have "
        "collapsed.",
    )
    max_equal_vectors: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="Share of chunks whose vector is also that of a different text.",
    )
    min_reembedded: float = Field(
        default=0.98,
        ge=0,
        le=1,
        description="Share of the sampled chunks that get their stored vector again (cosine at "
        "least 0.99) when the version's model embeds them now.",
    )
    min_self_retrieval: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Share of the sampled chunks that are among the first ten hits for the middle "
        "half of their own text, at most 16 words of it; less is taken when the published version "
        "has no more.",
    )
    max_self_retrieval_drop: float = Field(
        default=0.05, ge=0, le=1, description="By which that may be below the published version's."
    )
    first_version: Literal["integrity", "all"] = Field(
        default="integrity",
        description="What keeps the first version of an index from readers, who have no other: "
        "records that are missing or wrong (`integrity`), or every gate (`all`). The others are "
        "recorded and shown.",
    )
    slice_by: NonEmpty | None = Field(
        default=None,
        description="Metadata key (a tenant, a source, a language) for each of whose values the "
        "self-retrieval must hold as well.",
    )
    min_slice_self_retrieval: float = Field(
        default=0.4, ge=0, le=1, description="Of the worst value with at least ten sampled chunks."
    )
    min_neighbour_overlap: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="Share of the ten nearest neighbours that a chunk has in the published version "
        "as well, on average.",
    )
    queries: NonEmpty | None = Field(
        default=None,
        description="Questions of your own: JSON lines with `_id` (or `query_id`) and `text`.",
    )
    qrels: NonEmpty | None = Field(
        default=None,
        description="Which documents answer them: `query`, `document`, `grade`, by tabs.",
    )
    min_ndcg: float = Field(default=0.0, ge=0, le=1, description="nDCG@10 over these questions.")
    min_ndcg_delta: float = Field(
        default=-0.02,
        ge=-1,
        le=1,
        description="nDCG@10 above the published version's; negative allows a loss.",
    )
    decide_by: Literal["mean", "interval"] = Field(
        default="mean",
        description="What must reach `min_ndcg_delta`: the `mean` difference, or the lower end of "
        "its 95 % bootstrap `interval`.",
    )
    min_canary_cosine: float = Field(
        default=0.999,
        ge=0,
        le=1,
        description="Between the vectors of a few fixed texts now and when the version began; "
        "below, the model has changed behind its name and nothing is embedded.",
    )

    @model_validator(mode="after")
    def _labels_are_a_pair(self) -> Self:
        if (self.queries is None) != (self.qrels is None):
            raise PydanticCustomError("pair", "queries and qrels go together")
        return self
