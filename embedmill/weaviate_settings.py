"""Settings of a Weaviate server, and the names that metadata keys get there."""

from __future__ import annotations

import re
from typing import Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.server_settings import refuse_key_in_the_clear, typed_key
from embedmill.setting_types import Frozen, NonEmpty, SecretRef

PropertyType = Literal["keyword", "keyword[]", "text", "int", "number", "bool", "date"]
PROPERTY_TYPES: tuple[PropertyType, ...] = get_args(PropertyType)
# Endings that Weaviate keeps for itself, from 1.35 on.
_RESERVED_ENDING = re.compile(
    r"(_searchable|_rangeable|_temp|__meta_count|_propertyLength|_nullState)$"
)
# Of a property's name; Weaviate takes 231 characters.
_LONGEST_NAME = 200


class WeaviateSettings(Frozen):
    """A Weaviate server, of your own or in Weaviate Cloud; version 1.29 or later."""

    kind: Literal["weaviate"]
    url: str = Field(
        default="http://localhost:8080",
        pattern=r"^https?://[^/?#@\s]+$",
        description="Address of the server's REST interface.",
    )
    grpc_url: str | None = Field(
        default=None,
        pattern=r"^https?://[^/?#@\s]+$",
        description="Address of its gRPC interface; without it port 50051 of the same machine, and "
        "for Weaviate Cloud the address that belongs to `url`.",
    )
    api_key: SecretRef | None = Field(
        default=None,
        description="`${NAME}` of an environment variable; without it no key is sent.",
    )
    allow_http: bool = Field(
        default=False,
        description="Send the key to another machine in the clear, for a network of your own.",
    )
    timeout_s: int = Field(
        default=90, gt=0, description="Silence after which a request counts as lost, in seconds."
    )
    index_timeout_s: float = Field(
        default=3600.0,
        gt=0,
        description="Most that the server may take to index what it has stored, before a version "
        "is published.",
    )
    consistency: Literal["one", "quorum", "all"] = Field(
        default="quorum",
        description="Copies that must confirm a write and agree on a read.",
    )
    records_per_request: int = Field(
        default=256, gt=0, le=10_000, description="Records in one request at most."
    )
    request_bytes: int = Field(
        default=8 * 2**20,
        ge=2**16,
        le=100 * 2**20,
        description="Bytes in one request at most; a server that takes less wins.",
    )
    writers: int = Field(
        default=8, gt=0, description="Processes that may write at once, one request of each."
    )

    index_type: Literal["hnsw", "flat", "dynamic"] = Field(
        default="hnsw",
        description="`flat` compares with every record; `dynamic` begins flat, and needs a server "
        "with asynchronous indexing.",
    )
    compression: Literal["none", "rq", "sq", "bq"] = Field(
        default="none",
        description="Smaller copies of the vectors in memory; the full ones decide the order.",
    )
    graph_max_connections: int | None = Field(
        default=None, ge=4, description="Links per record of the HNSW graph."
    )
    graph_ef_construction: int | None = Field(
        default=None, ge=4, description="Neighbours looked at when the graph is built."
    )
    search_ef: int | None = Field(
        default=None, gt=0, description="Neighbours looked at by a search; more is more exact."
    )
    shards: int | None = Field(
        default=None, gt=0, description="Shards of a collection; without it what the server does."
    )
    replication_factor: int | None = Field(
        default=None, gt=0, description="Copies of each shard; without it what the server does."
    )
    searchable_text: bool = Field(
        default=True,
        description="Index the words of each chunk, for keyword and hybrid search by other "
        "programs.",
    )
    properties: tuple[NonEmpty, ...] = Field(
        default=(),
        description="Metadata keys that other programs see as properties, `metadata_KEY`: `lang`, "
        "or with a type `year:int` (keyword, keyword[], text, int, number, bool, date). The "
        "filters of embedmill work without.",
    )
    tenant_key: NonEmpty | None = Field(
        default=None,
        description="Metadata key that tells customers apart: each value is a tenant with a shard "
        "of its own. Meant for tens of them: what is deleted is looked for in each.",
    )

    @model_validator(mode="after")
    def _key_not_in_the_clear(self) -> Self:
        if self.api_key is not None and not self.allow_http:
            refuse_key_in_the_clear(filter(None, (self.url, self.grpc_url)))
        return self

    @model_validator(mode="after")
    def _names_do_not_meet(self) -> Self:
        keys: dict[str, str] = {}
        for key, _ in map(property_field, self.properties):
            name = property_name(key)
            other = keys.get(name.lower())
            if other is not None:
                raise PydanticCustomError(
                    "same_property",
                    "{one} and {other} would both be the property {name}",
                    {"one": repr(other), "other": repr(key), "name": name},
                )
            keys[name.lower()] = key
        return self


def property_field(entry: str) -> tuple[str, PropertyType]:
    """Metadata key and type of an entry of ``properties``; a keyword where none is given."""
    return typed_key(entry, PROPERTY_TYPES, "keyword")


def property_name(key: str) -> str:
    """The property of a metadata key: Weaviate takes ASCII letters, digits and ``_``.

    Everything else becomes ``_``; what Weaviate keeps for itself gets a ``_`` at its end. The key
    stands in the property's description.
    """
    name = re.sub(r"[^A-Za-z0-9_]", "_", f"metadata_{key}")[:_LONGEST_NAME]
    return f"{name}_" if _RESERVED_ENDING.search(name) else name


def addresses(settings: WeaviateSettings) -> tuple[tuple[str, int, bool], tuple[str, int, bool]]:
    """Host, port and whether encrypted: of the REST interface, and of gRPC."""
    rest = urlsplit(settings.url)
    secure = rest.scheme == "https"
    host = rest.hostname or ""
    http = (host, rest.port or (443 if secure else 80), secure)
    if settings.grpc_url is not None:
        grpc = urlsplit(settings.grpc_url)
        encrypted = grpc.scheme == "https"
        return http, (grpc.hostname or "", grpc.port or (443 if encrypted else 50_051), encrypted)
    # Weaviate Cloud, as its own client has it.
    if host.endswith(".weaviate.cloud"):
        return http, (f"grpc-{host}", 443, True)
    if host.endswith(".weaviate.network"):
        name, _, domain = host.partition(".")
        return http, (f"{name}.grpc.{domain}", 443, True)
    return http, (host, 50_051, secure)
