"""Settings of any server that speaks OpenAI's language, and the recipe that follows."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.compatible_servers import COMPATIBLE_SERVERS, CompatibleServer, ServerName
from embedmill.rate_budget_settings import RateBudgetSettings
from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.remote_settings import RequestsAtATime, Revision, Timeout, Tokenizer
from embedmill.setting_types import Frozen, NonEmpty, SecretRef


class CompatibleEmbedderSettings(Frozen):
    """A server that speaks OpenAI's language: TEI, vLLM, Infinity, Ollama, LiteLLM, Azure."""

    kind: Literal["openai_compatible"]
    base_url: NonEmpty = Field(
        description="Address up to `/embeddings`: `http://localhost:8080/v1`."
    )
    server: ServerName = Field(
        default="other",
        description="Which one it is: decides about the key's header and how much goes in a "
        "request, as far as the other settings do not.",
    )
    model: NonEmpty = Field(
        description="Name of the model, as the server has it; of the deployment with Azure."
    )
    revision: Revision = "provider"
    dimensions: int = Field(gt=0, description="Components of a vector, as they are stored.")
    shorten: Literal["never", "server", "client"] = Field(
        default="never",
        description="Where the model has more components than `dimensions`: `server` asks for so "
        "many; `client` cuts the rest off and makes the norm 1 again. Only for models that were "
        "trained for it (Matryoshka).",
    )
    normalised: bool = Field(
        default=True, description="The vectors have norm 1; this is checked, not assumed."
    )
    renormalise: bool = Field(
        default=False,
        description="Divide vectors by their norm, for a server that leaves them as they are.",
    )
    document_prompt: str = Field(default="", description="Put before documents.")
    query_prompt: str = Field(default="", description="Put before queries.")
    api_key: SecretRef | None = Field(
        default=None,
        description="`${NAME}` of an environment variable; without it no key is sent. Azure needs "
        "one.",
    )
    encoding_format: Literal["base64", "float"] = Field(
        default="base64",
        description="`float` for servers that refuse base64; replies are four times as large.",
    )
    max_tokens: int = Field(gt=0, description="Window of the model; a longer text is cut.")
    tokenizer: Tokenizer = "estimate"
    timeout_s: Timeout = 120.0
    inputs_per_request: int | None = Field(
        default=None,
        gt=0,
        description="Texts in one request at most; without it what suits the server: 32 for TEI, "
        "64 for Ollama and others, 256 for vLLM, Infinity and LiteLLM, 512 for Azure.",
    )
    tokens_per_request: int | None = Field(
        default=None, gt=0, description="Tokens in one request at most; without it 250,000."
    )
    requests_at_a_time: RequestsAtATime = 4
    rate_budget: RateBudgetSettings = RateBudgetSettings()

    @model_validator(mode="after")
    def _each_key_has_an_effect(self) -> Self:
        if self.renormalise and not self.normalised:
            raise PydanticCustomError(
                "no_effect", "renormalise makes norms 1; normalised: false says they are not"
            )
        if self.profile.needs_key and self.api_key is None:
            raise PydanticCustomError(
                "api_key", "api_key must be given for server {server}", {"server": self.server}
            )
        return self

    @property
    def profile(self) -> CompatibleServer:
        """What is known of the server."""
        return COMPATIBLE_SERVERS[self.server]

    @property
    def request_inputs(self) -> int:
        """Texts in one request at most."""
        return self.inputs_per_request or self.profile.inputs_per_request


def compatible_recipe(settings: CompatibleEmbedderSettings, metric: Metric) -> EmbeddingRecipe:
    """All that decides a vector; the address is no part of it, another machine changes nothing."""
    return EmbeddingRecipe(
        provider="openai_compatible",
        model=settings.model,
        revision=settings.revision,
        dimension=settings.dimensions,
        dtype="float32",
        normalise=settings.normalised,
        document_prompt=settings.document_prompt,
        query_prompt=settings.query_prompt,
        max_tokens=settings.max_tokens,
        metric=metric,
    )
