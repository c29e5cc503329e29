"""Settings of embedding jobs, the same for every provider that has them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from embedmill.setting_types import Frozen

JobMode = Literal["realtime", "batch", "auto"]


class EmbeddingJobSettings(Frozen):
    """How a provider's asynchronous jobs are used."""

    inputs_per_request: int = Field(
        default=1,
        gt=0,
        description="Texts in one request of a job. 1 keeps a bad text alone; more make fewer "
        "requests, and a request that fails is tried again text by text.",
    )
    inputs_per_file: int | None = Field(
        default=None,
        gt=0,
        description="Texts in one file at most, for a server or an account that takes fewer than "
        "its provider states. A file that is refused for its size is sent again in halves.",
    )
    realtime_below: int = Field(
        default=200,
        ge=0,
        description="In mode `auto`: fewer rows than this that are left over go through the "
        "realtime endpoint instead of a job of their own.",
    )
    deadline_hours: float | None = Field(
        default=None,
        gt=0,
        description="In mode `auto`, and in `realtime` while jobs are still open: what is not done "
        "so long after the run began goes through the realtime endpoint; its jobs are cancelled, "
        "what they finished is kept.",
    )
    on_stale_input: Literal["finish", "cancel"] = Field(
        default="finish",
        description="What becomes of a job whose documents have changed or gone meanwhile: "
        "`finish` lets it end, its vectors belong to the texts and are taken over where those "
        "still stand; `cancel` cancels it, keeps what it finished, sends again what is still "
        "wanted, and nothing else.",
    )
    stale_share: float = Field(
        default=0.5,
        gt=0,
        le=1,
        description="With `on_stale_input: cancel`: a job is cancelled when at least this share of "
        "its rows is no longer wanted. A small share cancels often, and a cancelled row waits "
        "for another day.",
    )
    canaries: int = Field(
        default=3,
        ge=0,
        le=16,
        description="Known texts in every file, whose answers are checked before anything is used; "
        "their vectors are asked for once, through the realtime endpoint. 0: none.",
    )
    poll_seconds: float = Field(
        default=15.0, gt=0, description="Before the first question about a job."
    )
    poll_most_seconds: float = Field(
        default=600.0, gt=0, description="Between two questions at most; the gap grows up to it."
    )
    row_tries: int = Field(
        default=5, gt=0, le=100, description="Jobs that a row may be in before it dies."
    )
    dollars_per_million_tokens: float | None = Field(
        default=None,
        ge=0,
        description="Price of the jobs, for the cost in reports; without it the cost is unknown.",
    )
