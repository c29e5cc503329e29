"""Settings of Cohere's embeddings, and the recipe that follows."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.cohere_models import COHERE_MODELS, MOST_INPUTS, CohereModel
from embedmill.job_settings import EmbeddingJobSettings, JobMode
from embedmill.rate_budget_settings import RateBudgetSettings
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.remote_settings import (
    KnownDimensions,
    RequestsAtATime,
    Revision,
    SentType,
    Timeout,
    Tokenizer,
    Window,
    require_known_model,
)
from embedmill.setting_types import Frozen, NonEmpty, SecretRef

COHERE_URL = "https://api.cohere.com"


class CohereEmbedderSettings(Frozen):
    """Cohere's embeddings."""

    kind: Literal["cohere"]
    model: NonEmpty = Field(default="embed-v4.0", description="Name of the model.")
    dimensions: KnownDimensions = None
    vector_type: SentType = "float"
    base64: bool = Field(
        default=False,
        description="Ask for floats as base64: a quarter of the bytes. Cohere does not say of "
        "which type these are; float32 is assumed, and a vector of another length fails.",
    )
    document_input_type: Literal["search_document", "classification", "clustering"] = Field(
        default="search_document", description="What Cohere is told that a document is."
    )
    query_input_type: Literal["search_query", "classification", "clustering"] = Field(
        default="search_query", description="What Cohere is told that a query is."
    )
    revision: Revision = "provider"
    api_key: SecretRef = Field(
        default="${CO_API_KEY}", description="`${NAME}` of an environment variable."
    )
    base_url: NonEmpty = Field(default=COHERE_URL, description="Address, without a version.")
    max_tokens: Window = None
    tokenizer: Tokenizer = "estimate"
    timeout_s: Timeout = 120.0
    inputs_per_request: int = Field(
        default=MOST_INPUTS, gt=0, le=MOST_INPUTS, description="Texts in one request at most."
    )
    tokens_per_request: int = Field(
        default=120_000,
        gt=0,
        description="Tokens in one request at most. Cohere names no number; a request that it "
        "refuses is halved.",
    )
    requests_at_a_time: RequestsAtATime = 4
    rate_budget: RateBudgetSettings = RateBudgetSettings()
    mode: JobMode = Field(
        default="realtime",
        description="How documents are embedded: one request at a time (`realtime`), through "
        "Cohere's jobs (`batch`; see `jobs_through`), or through jobs but for what is "
        "too little for one (`auto`).",
    )
    jobs_through: Literal["embed_jobs", "batches"] = Field(
        default="embed_jobs",
        description="Which of Cohere's two ways jobs take. `batches`: models of any version, at "
        "the dimension that they have. What their files hold is not documented by Cohere but "
        "known from its client and its users: try it with a few documents first.",
    )
    jobs: EmbeddingJobSettings = EmbeddingJobSettings()

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        require_known_model(self.model, self.dimensions, self.max_tokens, COHERE_MODELS)
        if self.base64 and self.vector_type != "float":
            raise PydanticCustomError(
                "base64", "only floats come as base64, not {kind}", {"kind": self.vector_type}
            )
        return self

    @model_validator(mode="after")
    def _jobs_take_it(self) -> Self:
        if self.mode == "realtime":
            return self
        known = COHERE_MODELS.get(self.model)
        if self.jobs_through == "batches":
            self._require_own_dimension(known)
        elif known is None or not known.jobs:
            raise PydanticCustomError(
                "mode",
                "{mode} is not for {model}: Cohere's embed jobs take models of version 3 only "
                "({able}); jobs_through: batches takes others",
                {
                    "mode": self.mode,
                    "model": self.model,
                    "able": ", ".join(name for name, it in COHERE_MODELS.items() if it.jobs),
                },
            )
        if self.vector_type != "float":
            raise PydanticCustomError(
                "mode",
                "{mode} takes floats only, not {kind}",
                {"mode": self.mode, "kind": self.vector_type},
            )
        return self

    def _require_own_dimension(self, known: CohereModel | None) -> None:
        if known is not None and self.dimensions not in {None, known.dimension}:
            raise PydanticCustomError(
                "dimensions",
                "Cohere's batches send the {own} dimensions that {model} has, not {given}",
                {"own": known.dimension, "model": self.model, "given": self.dimensions},
            )

    @property
    def dimension(self) -> int:
        """Of a vector."""
        return self.dimensions or COHERE_MODELS[self.model].dimension

    @property
    def window(self) -> int:
        """Tokens of one text that the model sees."""
        return self.max_tokens or COHERE_MODELS[self.model].window


def cohere_recipe(settings: CohereEmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides a vector; the address is no part of it."""
    return EmbeddingRecipe(
        provider="cohere",
        model=settings.model,
        revision=settings.revision,
        dimension=settings.dimension,
        dtype="float32" if settings.vector_type == "float" else settings.vector_type,
        normalise=True,
        document_prompt="",
        query_prompt="",
        max_tokens=settings.window,
        metric=metric,
        document_input_type=settings.document_input_type,
        query_input_type=settings.query_input_type,
    )
