"""Settings of Voyage's embeddings, and the recipe that follows."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

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
from embedmill.voyage_models import MOST_INPUTS, UNLISTED_REQUEST_TOKENS, VOYAGE_MODELS

VOYAGE_URL = "https://api.voyageai.com/v1"
# Of a model's cap: its tokenizer counts more than any estimate on mixed content.
_SHARE_OF_CAP = 0.9


class VoyageEmbedderSettings(Frozen):
    """Voyage's embeddings."""

    kind: Literal["voyage"]
    model: NonEmpty = Field(default="voyage-4", description="Name of the model.")
    dimensions: KnownDimensions = None
    vector_type: SentType = "float"
    document_input_type: Literal["document", "none"] = Field(
        default="document",
        description="Voyage puts a prompt of its own before a text that it is told to be a "
        "document; `none`: nothing is said.",
    )
    query_input_type: Literal["query", "none"] = Field(
        default="query", description="The same for queries."
    )
    revision: Revision = "provider"
    api_key: SecretRef = Field(
        default="${VOYAGE_API_KEY}", description="`${NAME}` of an environment variable."
    )
    base_url: NonEmpty = Field(default=VOYAGE_URL, description="Address of the server, with `/v1`.")
    max_tokens: Window = None
    tokenizer: Tokenizer = "estimate"
    timeout_s: Timeout = 120.0
    inputs_per_request: int = Field(
        default=256, gt=0, le=MOST_INPUTS, description="Texts in one request at most."
    )
    tokens_per_request: int | None = Field(
        default=None,
        gt=0,
        description="Tokens in one request at most; without it nine tenths of what Voyage takes "
        "for this model, since the count is ours.",
    )
    requests_at_a_time: RequestsAtATime = 4
    rate_budget: RateBudgetSettings = RateBudgetSettings()
    enqueued_tokens: int | None = Field(
        default=None,
        gt=0,
        description="Tokens that may wait in embedding jobs of the organisation at a time; without "
        "it nine tenths of what Voyage takes.",
    )
    mode: JobMode = Field(
        default="realtime",
        description="How documents are embedded: one request at a time (`realtime`), through "
        "embedding jobs at two thirds of the price within twelve hours (`batch`, in public preview "
        "at Voyage), or through jobs but for what is too little or too late for one (`auto`).",
    )
    jobs: EmbeddingJobSettings = EmbeddingJobSettings()

    @model_validator(mode="after")
    def _model_fits(self) -> Self:
        require_known_model(self.model, self.dimensions, self.max_tokens, VOYAGE_MODELS)
        known = VOYAGE_MODELS.get(self.model)
        if self.vector_type != "float" and known is not None and not known.quantised:
            raise PydanticCustomError(
                "vector_type", "{model} sends floats only", {"model": self.model}
            )
        if self.mode != "realtime" and known is not None and not known.jobs:
            raise PydanticCustomError(
                "mode",
                "{mode} is not for {model}: Voyage's Batch API takes {able}",
                {
                    "mode": self.mode,
                    "model": self.model,
                    "able": ", ".join(name for name, it in VOYAGE_MODELS.items() if it.jobs),
                },
            )
        return self

    @property
    def dimension(self) -> int:
        """Of a vector."""
        return self.dimensions or VOYAGE_MODELS[self.model].dimension

    @property
    def window(self) -> int:
        """Tokens of one text that the model sees."""
        return self.max_tokens or VOYAGE_MODELS[self.model].window

    @property
    def request_tokens(self) -> int:
        """Tokens in one request at most."""
        known = VOYAGE_MODELS.get(self.model)
        cap = known.request_tokens if known else UNLISTED_REQUEST_TOKENS
        return self.tokens_per_request or int(cap * _SHARE_OF_CAP)


def voyage_recipe(settings: VoyageEmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides a vector; the address is no part of it."""
    document, query = settings.document_input_type, settings.query_input_type
    return EmbeddingRecipe(
        provider="voyage",
        model=settings.model,
        revision=settings.revision,
        dimension=settings.dimension,
        dtype="float32" if settings.vector_type == "float" else settings.vector_type,
        normalise=True,
        document_prompt="",
        query_prompt="",
        max_tokens=settings.window,
        metric=metric,
        document_input_type="" if document == "none" else document,
        query_input_type="" if query == "none" else query,
    )
