"""Settings in, live objects out: with the dispatch modules, all that chooses a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import assert_never, cast

from embedmill.applied_layer import AppliedLayer
from embedmill.bulk_import import BulkImporter, ImportingStore
from embedmill.canary import Canary, CanaryLayer, WatchedEmbedder
from embedmill.chunker import Chunker
from embedmill.chunkers.build import build_chunker, chunking_recipe
from embedmill.compacting import Fills, ShardCompactor
from embedmill.embedder import Embedder
from embedmill.embedders.build import build_embedder, embedding_recipe, token_window
from embedmill.errors import SettingsError
from embedmill.manifest import Manifest
from embedmill.own_folders import own_folders, own_objects, scan_without
from embedmill.parsers.by_media_type import MediaTypeParser
from embedmill.pinecone_settings import BulkImportSettings, PineconeSettings
from embedmill.query_contract import QueryContract, publish_contract
from embedmill.rate_limiter import RateLimiter
from embedmill.readings import Readings
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.run_context import RunContext, utc_now
from embedmill.segment import ChunkLayer
from embedmill.settings import Settings
from embedmill.source import Source
from embedmill.source_settings import FilesSourceSettings, TableSourceSettings
from embedmill.throttle import RequestPace, at_once
from embedmill.vector_layer import VectorLayer
from embedmill.vector_store import CollectionSpec, VectorStore
from embedmill.vector_stores.build import open_store
from embedmill.workspace import Workspace, open_workspace


def build_source(settings: Settings) -> Source:
    """The source that the settings name; nothing is opened yet."""
    source = settings.source
    scan, own = scan_without(own_folders(settings)), own_objects(settings)
    match source:
        case FilesSourceSettings():
            from embedmill.sources.files import FilesSource

            return FilesSource(source, scan_folder=scan, own=own)
        case TableSourceSettings():
            from embedmill.sources.tables import TableSource

            return TableSource(source, scan_folder=scan, own=own)
        case _:
            assert_never(source)


def build_parser(settings: Settings) -> MediaTypeParser:
    """The parser for all media types of the source."""
    source = settings.source
    fallback = source.fallback_encoding if isinstance(source, FilesSourceSettings) else None
    return _seams.parser(MediaTypeParser(fallback))


def chunker_of(settings: Settings, existing: ChunkingRecipe | None = None) -> Chunker:
    """The chunker, counting in the tokens of the settings' model.

    Args:
        settings: of the index.
        existing: of the version that is continued.
    """
    parser = build_parser(settings).fingerprint
    return build_chunker(settings.chunker, settings.embedder, parser, existing)


def recipes_of(settings: Settings) -> tuple[ChunkingRecipe, EmbeddingRecipe]:
    """What the settings ask for, without loading a model."""
    parser = build_parser(settings).fingerprint
    chunking = chunking_recipe(settings.chunker, token_window(settings.embedder), parser)
    return chunking, embedding_recipe(settings.embedder, settings.metric)


@dataclass(frozen=True, slots=True)
class Seams:
    """Wrappers around what has effects, for tests that count effects or fail at one of them.

    They hold in this process only (``embedmill.testing.worker_faults`` sends them to others).
    """

    source: Callable[[Source], Source] = lambda real: real
    parser: Callable[[MediaTypeParser], MediaTypeParser] = lambda real: real
    workspace: Callable[[Workspace], Workspace] = lambda real: real
    embedder: Callable[[Embedder], Embedder] = lambda real: real
    store: Callable[[VectorStore], VectorStore] = lambda real: real
    bucket: Callable[[Workspace], Workspace] = lambda real: real


_seams = Seams()


@contextmanager
def seams(wrappers: Seams) -> Iterator[None]:
    """Put wrappers around what is made meanwhile."""
    global _seams  # noqa: PLW0603 - one place for tests to reach into workers built from settings
    before, _seams = _seams, wrappers
    try:
        yield
    finally:
        _seams = before


def source_of(settings: Settings) -> Source:
    """The source, for a worker that reads it."""
    return _seams.source(build_source(settings))


def workspace_of(settings: Settings) -> Workspace:
    """Open the workspace."""
    return _seams.workspace(open_workspace(settings.workspace))


def embedder_of(
    settings: Settings, recipe: EmbeddingRecipe, limiter: RateLimiter | None = None
) -> Embedder:
    """Load the model of an index version; it computes as the version's recipe says.

    Args:
        settings: of the index.
        recipe: of the version.
        limiter: of requests to a provider (see ``build_embedder``).
    """
    return _seams.embedder(build_embedder(settings.embedder, recipe, limiter))


def watched_embedder_of(
    context: RunContext, workspace: Workspace, limiter: RateLimiter | None = None
) -> WatchedEmbedder:
    """The same for a run: it proves before its first text that the model is the one it was.

    Services that embed queries find the contract of the version from then on.

    Args:
        context: of the run.
        workspace: keeps the canary.
        limiter: of requests to a provider.
    """
    settings = context.settings

    def publish(canary: Canary) -> None:
        contract = QueryContract(settings.index, context.version, context.collection, canary)
        publish_contract(workspace, contract)

    return WatchedEmbedder(
        embedder_of(settings, context.embedding, limiter),
        CanaryLayer(workspace, settings.index),
        settings.embedder.model_dump(mode="json"),
        least=settings.gates.min_canary_cosine,
        now=utc_now,
        on_proved=publish,
    )


def store_of(settings: Settings, pace: RequestPace = at_once) -> VectorStore:
    """Open the store; ``pace`` is that of its requests that write."""
    return _seams.store(open_store(settings.store, pace))


def bulk_settings(settings: Settings) -> BulkImportSettings | None:
    """How the store reads large copies by itself; None: it does not."""
    return settings.store.bulk_import if isinstance(settings.store, PineconeSettings) else None


def import_bucket(context: RunContext) -> Workspace:
    """The bucket that the store reads from."""
    bulk = bulk_settings(context.settings)
    assert bulk is not None, "nobody imports without a bucket"
    return _seams.bucket(open_workspace(bulk.bucket))


def importer_of(store: VectorStore, context: RunContext) -> BulkImporter:
    """Imports into the version's collection; the store's settings have a bucket."""
    importing = cast("ImportingStore", store)
    return importing.bulk_importer(context.collection, collection_spec(context.embedding))


def collection_spec(recipe: EmbeddingRecipe) -> CollectionSpec:
    """What a collection for these vectors is."""
    return CollectionSpec(recipe.dimension, recipe.metric, recipe.normalise)


class Layers:
    """The layers of one index version."""

    def __init__(self, context: RunContext) -> None:
        settings = context.settings
        self.workspace: Workspace = workspace_of(settings)
        index, run = settings.index, context.run
        self.chunks = ChunkLayer(self.workspace, index, context.chunking.id, run)
        self.vectors = VectorLayer.of_version(self.workspace, index, context, run)
        self.applied = AppliedLayer(self.workspace, settings.index, context.applied)
        self._of_chunks = index, context.chunking.id

    def readings(self, shard: int) -> Readings:
        """What was read of the objects of a shard."""
        return Readings(self.workspace, *self._of_chunks, shard)

    def compactor(self, context: RunContext, shard: int) -> ShardCompactor:
        """The compactor of one shard.

        Versions that use other chunks or have no data do not count for it. One that is kept for a
        way back counts: while it lacks something, nothing is folded.

        Args:
            context: of the run.
            shard: its number.
        """
        name = context.settings.index
        manifest = Manifest(self.workspace, name)

        def fills() -> list[Fills]:
            return [
                Fills(
                    VectorLayer.of_version(self.workspace, name, version),
                    AppliedLayer(self.workspace, name, version.collection),
                )
                for version in manifest.read().versions
                if version.chunking == context.chunking
                and version.state != "failed"
                and version.pruned is None
            ]

        return ShardCompactor(self.chunks, fills, shard, context.settings.segment_chunks)


def require_local_store(settings: Settings, executor: str) -> None:
    """Refuse a store that lives in one process when the run has several.

    Raises:
        SettingsError: it does.
    """
    if settings.store.kind == "memory" and executor != "inline":
        raise SettingsError(
            "the memory store is gone when its process ends",
            hint="add --local, or choose store.kind qdrant_embedded",
        )
