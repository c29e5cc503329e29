"""Settings: frozen, complete and strict; an unknown key is refused with the nearest name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self, get_args

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.compatible_settings import CompatibleEmbedderSettings
from embedmill.gate_settings import GateSettings
from embedmill.openai_settings import OpenAIEmbedderSettings
from embedmill.pinecone_settings import PineconeSettings
from embedmill.plugins import (
    PROVIDERS,
    STORES,
    ProviderPluginSettings,
    StorePluginSettings,
    choice,
)
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.recipe import Metric
from embedmill.run_settings import RunSettings
from embedmill.setting_types import Frozen, Name, NonEmpty
from embedmill.source_settings import FilesSourceSettings, TableSourceSettings
from embedmill.version_settings import HookSettings, KeepSettings
from embedmill.voyage_settings import VoyageEmbedderSettings
from embedmill.weaviate_settings import WeaviateSettings
from embedmill.workspace_settings import WorkspaceSettings

SourceSettings = Annotated[FilesSourceSettings | TableSourceSettings, Field(discriminator="kind")]


class SplittingChunkerSettings(Frozen):
    """Cuts at the borders of the text's structure; `auto` follows the document's format."""

    kind: Literal["auto", "text", "markdown", "code"]
    max_tokens: int | None = Field(
        default=None,
        gt=0,
        description="Of one chunk, in the model's own tokens, special tokens and prompt not "
        "counted; without it all that the model's window leaves.",
    )
    overlap: int = Field(default=0, ge=0, description="Tokens that neighbours share.")
    splitter: Literal["auto", "borders", "semantic"] = Field(
        default="auto",
        description="What finds the borders. `borders`: each word is tokenised once, and the best "
        "borders over the whole text are taken. `semantic`: the semantic-text-splitter library, "
        "slower by far. `auto`: `borders`; an existing index keeps what it was built with.",
    )
    overflow: Literal["refuse", "truncate"] = Field(
        default="refuse",
        description="`refuse` a `max_tokens` above the model's window, or let the model "
        "`truncate`; truncated chunks are counted and marked.",
    )

    @model_validator(mode="after")
    def _overlap_below_limit(self) -> Self:
        if self.max_tokens is not None and self.overlap >= self.max_tokens:
            raise PydanticCustomError(
                "overlap",
                "overlap ({overlap}) must be less than max_tokens ({max_tokens})",
                {"overlap": self.overlap, "max_tokens": self.max_tokens},
            )
        return self


class DocumentChunkerSettings(Frozen):
    """One chunk per document."""

    kind: Literal["document"]
    overflow: Literal["refuse", "truncate"] = Field(
        default="refuse",
        description="A document over the model's window becomes a dead letter (`refuse`), or the "
        "model sees its beginning only (`truncate`; counted and marked).",
    )


ChunkerSettings = Annotated[
    SplittingChunkerSettings | DocumentChunkerSettings, Field(discriminator="kind")
]


class SentenceTransformersSettings(Frozen):
    """A local model in the form of sentence-transformers, on a CPU or a GPU of this machine."""

    kind: Literal["sentence_transformers"]
    model: NonEmpty = Field(
        description="`package:NAME` for weights that a Python package carries, a directory, or a "
        "hub id."
    )
    revision: str | None = Field(
        default=None, description="Of a hub model; resolved to a commit and recorded."
    )
    document_prompt: str | None = Field(
        default=None, description="Put before documents; without it what the model prescribes."
    )
    query_prompt: str | None = Field(
        default=None, description="Put before queries; without it what the model prescribes."
    )
    device: str = Field(
        default="auto",
        pattern=r"^(auto|cpu|mps|(cuda|xpu)(:[0-9]+)?)$",
        description="`auto`, `cpu`, `cuda`, `cuda:1`, `mps`.",
    )
    backend: Literal["auto", "torch", "openvino", "onnx"] = Field(
        default="auto",
        description="What computes. `auto`: on a CPU `openvino` where it is installed and knows "
        "the model, else `torch` or `onnx`; on a GPU `torch`. Changes no vector by more than "
        "rounding, so an index may be continued with another one.",
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16", "int8"] = Field(
        default="auto",
        description="`auto`: bfloat16 where the processor computes in it natively, else float32; "
        "an existing index keeps what it was built with. `int8`, on CPUs alone, is faster and "
        "changes the vectors a little: see `embedmill doctor --bench`.",
    )
    max_tokens: int | None = Field(
        default=None, gt=0, description="A smaller window than the model's own."
    )
    dimension: int | None = Field(
        default=None,
        gt=0,
        description="Of a vector, smaller than the model's own: its first components, normalised "
        "again where the model normalises. For models that were trained to be cut (Matryoshka).",
    )
    batch_size: int | None = Field(
        default=None,
        gt=0,
        description="Texts per forward pass; without it as many as are fastest on the device.",
    )
    streams: int | None = Field(
        default=None,
        gt=0,
        description="Batches that one process computes beside each other, with OpenVINO; without "
        "it what `embedmill doctor --bench` found fastest on the machine, else one for each "
        "thread.",
    )

    @model_validator(mode="after")
    def _backend_computes_so(self) -> Self:
        if self.dtype == "int8" and self.backend not in {"auto", "openvino"}:
            raise PydanticCustomError(
                "int8",
                "dtype int8 needs backend openvino, not {backend}",
                {"backend": self.backend},
            )
        if self.device not in {"auto", "cpu"} and (self.dtype == "int8" or self._is_for_cpus()):
            raise PydanticCustomError(
                "cpu_only",
                "device {device} is not for {what}, which computes on CPUs alone",
                {
                    "device": self.device,
                    "what": f"backend {self.backend}" if self._is_for_cpus() else "dtype int8",
                },
            )
        return self

    def _is_for_cpus(self) -> bool:
        return self.backend in {"openvino", "onnx"}

    @model_validator(mode="after")
    def _revision_has_an_effect(self) -> Self:
        if self.revision is not None and self.model.startswith("package:"):
            raise PydanticCustomError(
                "no_effect", "revision has no effect on a model that a package carries; remove it"
            )
        return self


# Chunks of a segment: seconds of work for a model.
SEGMENT = 512
# Where no model computes, files, calls and what they cost for each segment are most of the work
# (some 10 ms): with these and fewer workers a first ingest over Ray took a fifth less processor
# time.
HASHED_SEGMENT = 2_048


class HashingEmbedderSettings(Frozen):
    """Deterministic vectors from hashed words; no model, for tests and rehearsals."""

    kind: Literal["hashing"]
    dimension: int = Field(default=64, gt=0, le=65_536, description="Of a vector.")
    max_tokens: int = Field(default=512, gt=0, description="Window, in words.")
    document_prompt: str = Field(default="", description="Put before documents.")
    query_prompt: str = Field(default="", description="Put before queries.")


# Embedders behind somebody's server, all with a rate budget.
RemoteEmbedderSettings = (
    OpenAIEmbedderSettings
    | CompatibleEmbedderSettings
    | VoyageEmbedderSettings
    | CohereEmbedderSettings
)
if TYPE_CHECKING:
    EmbedderSettings = (
        SentenceTransformersSettings
        | RemoteEmbedderSettings
        | HashingEmbedderSettings
        | ProviderPluginSettings
    )
else:
    EmbedderSettings = choice(
        PROVIDERS,
        SentenceTransformersSettings,
        *get_args(RemoteEmbedderSettings),
        HashingEmbedderSettings,
    )


class QdrantEmbeddedSettings(Frozen):
    """Qdrant's engine inside the process, files in a local folder; one owner at a time."""

    kind: Literal["qdrant_embedded"]
    path: NonEmpty = Field(description="Folder on a local disk.")
    index_from: int = Field(
        default=50_000,
        gt=0,
        description="Records without a search index from which a run makes one when it has written "
        "them; a search compares with all others one by one, exactly.",
    )
    exact_search: bool = Field(
        default=False, description="Compare with every record, with or without an index."
    )
    search_ef: int | None = Field(
        default=None, gt=0, description="Neighbours looked at by a search; more is more exact."
    )


class MemoryStoreSettings(Frozen):
    """Records in the memory of one process, gone with it; with the inline executor only."""

    kind: Literal["memory"]
    name: Name = Field(default="default", description="Stores of one name share their records.")


class DiscardStoreSettings(Frozen):
    """Counts records and drops them: measures the pipeline without a store."""

    kind: Literal["discard"]
    path: NonEmpty = Field(description="Folder that keeps the counts.")


if TYPE_CHECKING:
    StoreSettings = (
        QdrantEmbeddedSettings
        | QdrantServerSettings
        | PineconeSettings
        | WeaviateSettings
        | MemoryStoreSettings
        | DiscardStoreSettings
        | StorePluginSettings
    )
else:
    StoreSettings = choice(
        STORES,
        QdrantEmbeddedSettings,
        QdrantServerSettings,
        PineconeSettings,
        WeaviateSettings,
        MemoryStoreSettings,
        DiscardStoreSettings,
    )


class Settings(Frozen):
    """One index: where its documents come from, how they become vectors, where these live."""

    index: Name = Field(description="What people query; the alias in the store has this name.")
    workspace: WorkspaceSettings
    source: SourceSettings
    chunker: ChunkerSettings
    embedder: EmbedderSettings
    store: StoreSettings
    metric: Metric = Field(default="cosine", description="How vectors are compared.")
    shard_count: int = Field(
        default=16, gt=0, le=65_536, description="Fixed for the life of the index."
    )
    sync: Literal["full", "append"] = Field(
        default="full",
        description="`full`: the source is complete, what is gone from it is deleted; `append`: "
        "nothing is ever deleted.",
    )
    max_delete_fraction: float = Field(
        default=0.2,
        ge=0,
        le=1,
        description="A full sync that would delete a larger share of the documents is refused.",
    )
    gates: GateSettings = GateSettings()
    run: RunSettings = RunSettings()
    keep: KeepSettings = KeepSettings()
    hooks: tuple[HookSettings, ...] = Field(
        default=(), description="Who is told when readers are sent to another version."
    )

    @property
    def segment_chunks(self) -> int:
        """Chunks that close a segment: ``run.segment_chunks``, else by the embedder."""
        if self.run.segment_chunks is not None:
            return self.run.segment_chunks
        return HASHED_SEGMENT if isinstance(self.embedder, HashingEmbedderSettings) else SEGMENT
