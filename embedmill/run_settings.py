"""Settings of how a run uses the machine."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen


class RunSettings(Frozen):
    """How a run uses the machine; none of it changes a result."""

    executor: Literal["auto", "inline", "ray"] = Field(
        default="auto",
        description="Where a run works: inline is this process alone; ray has "
        "workers. An ingest with auto begins inline and goes on over Ray when it is more than "
        "run.inline_chunks, or a cluster is named; everything else with auto is over Ray.",
    )
    inline_chunks: int = Field(
        default=4096,
        ge=0,
        description="Chunks of new and changed documents up to which auto stays inline, where a "
        "local model has all cores anyway: starting Ray and its workers takes longer than they "
        "gain with so few, and several times the memory.",
    )
    shard_workers: int | None = Field(
        default=None, gt=0, description="Processes that chunk; without it by the number of cores."
    )
    embed_workers: int | None = Field(
        default=None,
        gt=0,
        description="Processes that hold a model; without it as `embedmill doctor --bench` found "
        "fastest on this machine, else by the number of cores: one for up to 4 cores where "
        "OpenVINO computes, one for every 4 with the hashing embedder, else one for each.",
    )
    store_writers: int | None = Field(
        default=None,
        gt=0,
        description="Processes that write to the store; without it 4 to 8 by the number of cores, "
        "as far as the store takes them.",
    )
    gpus_per_embed_worker: float = Field(
        default=0.0, ge=0, description="May be a fraction; 0 embeds on the CPU."
    )
    segment_chunks: int | None = Field(
        default=None,
        gt=0,
        le=50_000,
        description="Chunks per segment: the unit that is committed, and lost at most, per worker; "
        "without it 512, and 2,048 with the hashing embedder.",
    )
    segment_bytes: int = Field(
        default=16 * 2**20, gt=0, description="Bytes of chunk text that close a segment earlier."
    )
    call_deadline_s: float = Field(
        default=900.0, gt=0, description="A worker that is silent for longer is replaced."
    )
    start_deadline_s: float = Field(
        default=180.0, gt=0, description="A worker that is not ready by then ends the run."
    )
    object_store_bytes: int = Field(
        default=512 * 2**20,
        ge=80 * 2**20,
        description="Shared memory of a local Ray; blocks in flight use at most 30 % of it.",
    )

    @field_validator("gpus_per_embed_worker")
    @classmethod
    def _schedulable(cls, value: float) -> float:
        if value > 1 and value != int(value):
            raise PydanticCustomError("gpus", "must be a fraction of 1 or a whole number")
        return value
