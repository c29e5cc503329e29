"""Settings of a Qdrant server."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from embedmill.server_settings import refuse_key_in_the_clear, typed_key
from embedmill.setting_types import Frozen, NonEmpty, SecretRef

# Qdrant's own default of ``hnsw_config.m``.
DEFAULT_GRAPH_M = 16

IndexType = Literal["keyword", "integer", "float", "bool", "datetime"]
_INDEX_TYPES: tuple[IndexType, ...] = ("keyword", "integer", "float", "bool", "datetime")


class QdrantServerSettings(Frozen):
    """A Qdrant server, of your own or in Qdrant Cloud; version 1.16 or later."""

    kind: Literal["qdrant"]
    url: str = Field(
        default="http://localhost:6333",
        pattern=r"^https?://[^/?#@\s]+(/[^?#@\s]*)?$",
        description="Address of the server's REST interface; port 6333 where none is given.",
    )
    api_key: SecretRef | None = Field(
        default=None,
        description="`${NAME}` of an environment variable; without it no key is sent.",
    )
    allow_http: bool = Field(
        default=False,
        description="Send the key to another machine in the clear, for a network of your own.",
    )
    prefer_grpc: bool = Field(
        default=False,
        description="Write records over gRPC; everything else stays on REST. Saves a fifth of the "
        "processor time for vectors of 1,536 components, costs half as much again for 384.",
    )
    grpc_port: int = Field(default=6334, gt=0, le=65_535, description="Of the same machine.")
    timeout_s: int = Field(
        default=60,
        gt=0,
        description="Silence after which a request counts as lost, in whole seconds.",
    )
    records_per_request: int = Field(
        default=256, gt=0, description="Records in one request at most; a stricter server wins."
    )
    request_bytes: int = Field(
        default=8 * 2**20,
        ge=2**20,
        le=30 * 2**20,
        description="Bytes in one request at most; a server refuses more than 32 MiB.",
    )
    writers: int = Field(
        default=8, gt=0, description="Processes that may write at once, one request of each."
    )

    on_disk: bool = Field(
        default=False, description="Keep full vectors on disk, not in the server's memory."
    )
    shard_number: int | None = Field(
        default=None, gt=0, description="Shards of a collection; without it what the server does."
    )
    replication_factor: int | None = Field(
        default=None, gt=0, description="Copies of each shard; without it what the server does."
    )
    write_consistency_factor: int | None = Field(
        default=None, gt=0, description="Copies that must confirm a write; without it the server's."
    )
    quantisation: Literal["none", "scalar", "binary"] = Field(
        default="none",
        description="Smaller copies of the vectors in memory: `scalar` a quarter, `binary` a 32nd; "
        "the full ones decide the order.",
    )
    graph_m: int | None = Field(
        default=None,
        ge=0,
        description="Links per record of the HNSW graph; 16 without it, 0 for no graph at all.",
    )
    graph_ef_construct: int | None = Field(
        default=None, ge=4, description="Neighbours looked at when the graph is built."
    )
    search_ef: int | None = Field(
        default=None, gt=0, description="Neighbours looked at by a search; more is more exact."
    )
    exact_search: bool = Field(
        default=False,
        description="Compare with every record, without the graph. Small collections have none "
        "anyway: a server makes it from about 10 MB of vectors on.",
    )
    payload_indexes: tuple[NonEmpty, ...] = Field(
        default=(),
        description="Metadata keys to filter on fast: `lang`, or with a type `year:integer` "
        "(keyword, integer, float, bool, datetime). `doc_id` and `chunk_index` always are.",
    )
    tenant_key: NonEmpty | None = Field(
        default=None,
        description="Metadata key that tells customers apart; their records are stored together.",
    )
    bulk_load: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Load without the graph and build it once at the end: a collection that is "
        "made now (`auto`), one that is still empty too (`on`), or never (`off`).",
    )

    @model_validator(mode="after")
    def _key_not_in_the_clear(self) -> Self:
        if self.api_key is not None and not self.allow_http:
            refuse_key_in_the_clear([self.url])
        return self


def index_field(entry: str) -> tuple[str, IndexType]:
    """Metadata key and type of an entry of ``payload_indexes``; a keyword where none is given."""
    return typed_key(entry, _INDEX_TYPES, "keyword")
