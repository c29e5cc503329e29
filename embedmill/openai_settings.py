"""Settings of OpenAI and of servers that speak its language, and the recipe that follows."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.job_settings import EmbeddingJobSettings
from embedmill.rate_budget_settings import RateBudgetSettings
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.remote_settings import RequestsAtATime
from embedmill.setting_types import Frozen, NonEmpty, SecretRef

OPENAI_URL = "https://api.openai.com/v1"
# Components of a vector; OpenAI's embeddings guide, as of November 2026.
NATIVE_DIMENSIONS = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
# The server cuts these to any shorter length and makes the norm 1 again.
SHORTENABLE = frozenset({"text-embedding-3-small", "text-embedding-3-large"})
# Of one text, for all of OpenAI's embedding models. OpenAI's embeddings reference, November 2026.
MAX_TOKENS = 8192


class OpenAIEmbedderSettings(Frozen):
    """OpenAI's embeddings, or those of a server that is compatible with it."""

    kind: Literal["openai"]
    model: NonEmpty = Field(
        default="text-embedding-3-small", description="Name of the model, as the server has it."
    )
    dimensions: int | None = Field(
        default=None,
        gt=0,
        description="Components of a vector. Without it what the model has; of the "
        "text-embedding-3 models a smaller number is asked of the server. Must be given for a "
        "model that is not OpenAI's, and is then only checked.",
    )
    revision: NonEmpty = Field(
        default="provider",
        description="State of the model. OpenAI has none to name; for a server of your own change "
        "this word whenever its weights change: it is part of the recipe.",
    )
    api_key: SecretRef = Field(
        default="${OPENAI_API_KEY}", description="`${NAME}` of an environment variable."
    )
    base_url: NonEmpty = Field(
        default=OPENAI_URL, description="Address of the server, with `/v1` where it has that."
    )
    encoding_format: Literal["base64", "float"] = Field(
        default="base64",
        description="`float` for servers that refuse base64; replies are four times as large.",
    )
    normalised: bool = Field(
        default=True, description="The vectors have norm 1, as OpenAI's have; this is checked."
    )
    max_tokens: int = Field(
        default=MAX_TOKENS, gt=0, description="Window of the model; a longer text is cut."
    )
    tokenizer: NonEmpty = Field(
        default="cl100k_base",
        description="How tokens are counted: an encoding of tiktoken by name (downloaded at first "
        "use), the path of a `.tiktoken` file of cl100k_base, or `estimate`: a cautious guess from "
        "the bytes of a text, without any download; chunks come out shorter than they might.",
    )
    timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="Silence after which a request counts as lost; five times that after an "
        "upload.",
    )
    inputs_per_request: int = Field(
        default=512,
        gt=0,
        le=2048,
        description="Texts in one request at most; one bad text fails its whole request, and then "
        "is found by halving.",
    )
    tokens_per_request: int = Field(
        default=250_000,
        gt=0,
        description="Tokens in one request at most; OpenAI refuses more than 300,000, by its own "
        "count.",
    )
    requests_at_a_time: RequestsAtATime = 4
    rate_budget: RateBudgetSettings = RateBudgetSettings()
    enqueued_tokens: int | None = Field(
        default=None,
        gt=0,
        description="Tokens that may wait in embedding jobs at a time, by the tier of your "
        "account; without it the server's refusals are waited out.",
    )

    mode: Literal["realtime", "batch", "auto"] = Field(
        default="auto",
        description="How documents are embedded: one request at a time at full price (`realtime`), "
        "through embedding jobs at half price within a day (`batch`), or through jobs but for what "
        "is too little or too late for one (`auto`).",
    )
    jobs: EmbeddingJobSettings = EmbeddingJobSettings()

    @model_validator(mode="after")
    def _dimensions_fit(self) -> Self:
        native = NATIVE_DIMENSIONS.get(self.model)
        if native is None and self.dimensions is None:
            raise PydanticCustomError(
                "dimensions",
                "dimensions must be given for {model}, which is not one of OpenAI's models",
                {"model": self.model},
            )
        if native is not None and self.dimensions is not None:
            shortened = self.dimensions < native and self.model in SHORTENABLE
            if not shortened and self.dimensions != native:
                raise PydanticCustomError(
                    "dimensions",
                    "{model} has {native} dimensions{shorter}, not {dimensions}",
                    {
                        "model": self.model,
                        "native": native,
                        "shorter": " or fewer" if self.model in SHORTENABLE else "",
                        "dimensions": self.dimensions,
                    },
                )
        return self


def openai_recipe(settings: OpenAIEmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides a vector; the address is no part of it, a proxy changes nothing."""
    dimension = settings.dimensions or NATIVE_DIMENSIONS[settings.model]
    return EmbeddingRecipe(
        provider="openai",
        model=settings.model,
        revision=settings.revision,
        dimension=dimension,
        dtype="float32",
        normalise=settings.normalised,
        document_prompt="",
        query_prompt="",
        max_tokens=settings.max_tokens,
        metric=metric,
    )


def asked_dimensions(model: str, dimension: int) -> int | None:
    """What a request has to say about the length of vectors; None: nothing, it is the model's own.

    Older models and many compatible servers refuse a request that says anything.
    """
    shortened = model in SHORTENABLE and dimension != NATIVE_DIMENSIONS[model]
    return dimension if shortened else None
