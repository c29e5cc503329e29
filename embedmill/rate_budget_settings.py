"""Settings of the rate budget: what a run, or all who share a key, may ask of a provider."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, Name, NonEmpty, SecretRef


class OneRunSettings(Frozen):
    """All workers of a run; nobody else uses the key for this model meanwhile."""

    kind: Literal["run"]


class SliceSettings(Frozen):
    """All workers of a run, with a fixed share of every limit; others have the rest."""

    kind: Literal["slices"]
    share: float = Field(gt=0, le=1, description="0.25 is a quarter.")


class RedisSettings(Frozen):
    """All runs, of any cluster, that name the same Redis and state the same limits."""

    kind: Literal["redis"]
    host: NonEmpty = Field(default="127.0.0.1", description="Of the server.")
    port: int = Field(default=6379, gt=0, le=65_535, description="Of the server.")
    database: int = Field(default=0, ge=0, description="Its number.")
    password: SecretRef | None = Field(
        default=None, description="`${NAME}` of an environment variable."
    )
    tls: bool = Field(default=False, description="Encrypt the connection.")
    name: Name | None = Field(
        default=None,
        description="Of the budget; without it there is one for every pair of API key and model.",
    )
    tenant: Name | None = Field(
        default=None, description="Who shares fairly with others; without it the index."
    )
    weight: int = Field(
        default=1, gt=0, le=1000, description="Of this tenant, when there is not enough for all."
    )


Sharing = Annotated[OneRunSettings | SliceSettings | RedisSettings, Field(discriminator="kind")]


class RateBudgetSettings(Frozen):
    """Limits of the account for realtime requests; embedding jobs have limits of their own."""

    requests_per_minute: int | None = Field(
        default=None, gt=0, description="Without it the provider's refusals slow everybody down."
    )
    tokens_per_minute: int | None = Field(
        default=None, gt=0, description="Without it the provider's refusals slow everybody down."
    )
    inputs_per_minute: int | None = Field(
        default=None,
        gt=0,
        description="Texts, whatever the requests: how Cohere limits an account (2,000). Without "
        "it the provider's refusals slow everybody down.",
    )
    concurrent_requests: int | None = Field(
        default=None, gt=0, description="Requests that are on their way at a time."
    )
    dollars: float | None = Field(
        default=None,
        gt=0,
        description="A run stops when the run, or with `redis` all who share the budget on one day "
        "(UTC), have spent so much on realtime requests. What was begun is finished.",
    )
    dollars_per_million_tokens: float | None = Field(
        default=None,
        ge=0,
        description="Price of realtime requests; without it their cost is not known.",
    )
    transit_s: float = Field(
        default=1.0,
        gt=0,
        le=20,
        description="A request arrives at the provider within so many seconds after it was "
        "permitted: the limits hold in every minute if that is so.",
    )
    shared_by: Sharing = Field(
        default=OneRunSettings(kind="run"), description="Who keeps to these limits together."
    )

    @model_validator(mode="after")
    def _price_is_known(self) -> Self:
        if self.dollars is not None and self.dollars_per_million_tokens is None:
            raise PydanticCustomError(
                "price", "dollars needs dollars_per_million_tokens: the price of realtime requests"
            )
        return self
