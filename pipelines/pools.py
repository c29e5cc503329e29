"""How many workers of each kind a run has, and what each may use."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from actors.embed_worker import EmbedWorker
from actors.embedding_job_runner import EmbeddingJobRunner
from actors.rate_budget import RateBudgetWorker, RunKeeper
from actors.read_worker import ReadWorker
from actors.shard_worker import ShardWorker
from actors.store_writer import StoreWriter
from embedmill.compatible_settings import CompatibleEmbedderSettings
from embedmill.embedding_layout import best_layout
from embedmill.executor import Executor, WorkerSpec
from embedmill.local_model import Backend
from embedmill.local_models.build import preferred_backends
from embedmill.processors import has_nvidia_driver, usable_cores
from embedmill.rate_assembly import limits_of, rate_budget_of
from embedmill.recipe import EmbeddingRecipe
from embedmill.run_context import RunContext
from embedmill.settings import (
    EmbedderSettings,
    HashingEmbedderSettings,
    RemoteEmbedderSettings,
    SentenceTransformersSettings,
    Settings,
)
from embedmill.vector_stores.build import store_limits
from pipelines.apply_stage import WRITE
from pipelines.dispatcher import Dispatcher
from pipelines.embed_stage import EMBED
from pipelines.scan import READ, SHARD

BUDGET = "rate budget"
# Segments that a worker has in hand at a time at most: a crash costs no more of them.
_MOST_SEGMENTS = 16
# A segment's batches still spread well over so many.
_MOST_STREAMS = 4
# Of all cores; what a larger worker leaves idle on a node may not be more.
_WORTH_USING = 0.85


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Workers of each kind.

    Attributes:
        readers: of the source.
        shard_workers: that chunk.
        embed_workers: that hold a model.
        writers: to the store.
        embed_cpus: cores of one embed worker.
        segments_at_a_time: that one embed worker has in hand.
    """

    readers: int
    shard_workers: int
    embed_workers: int
    writers: int
    embed_cpus: int = 1
    segments_at_a_time: int = 1


def pool_sizes(
    settings: Settings, executor: Executor, recipe: EmbeddingRecipe | None = None
) -> PoolSizes:
    """Decide the sizes: the settings', else by the machine.

    An executor without cores runs one worker of each kind: they take turns anyway.

    Args:
        settings: of the index.
        executor: of the run.
        recipe: of the model, for what was measured of it.
    """
    run = settings.run
    cores = executor.cores
    at_a_time = segments_at_a_time(settings.embedder, settings.segment_chunks)
    if not cores:
        return PoolSizes(1, 1, 1, 1, segments_at_a_time=at_a_time)
    embed_workers, embed_cpus = embed_layout(settings, executor.node_cores, recipe)
    # Chunking takes a tenth of what embedding takes on a CPU, but twice of what hashing takes.
    per_shard_worker = 2 if _hashes(settings) else 4
    shard_workers = run.shard_workers or max(1, cores // per_shard_worker)
    return PoolSizes(
        readers=max(1, min(4, cores // 4)),
        shard_workers=min(shard_workers, settings.shard_count),
        embed_workers=embed_workers,
        writers=writers_of(settings, executor),
        embed_cpus=embed_cpus,
        segments_at_a_time=at_a_time,
    )


def embed_layout(
    settings: Settings, node_cores: Sequence[int], recipe: EmbeddingRecipe | None = None
) -> tuple[int, int]:
    """How many embed workers there are, and how many cores each has.

    The settings' number; else what ``embedmill doctor --bench`` found fastest on this machine, if
    all nodes have as many cores as it. Without a measurement, what computes in streams holds its
    model once for up to 4 cores: two processes of one core are 4 % slower than one of two, hold the
    model twice and load it twice. Anything else gets one core each: torch on 2 cores is 9 to 17 %
    faster as two processes. Where words are hashed, a worker keeps up with two that cut.
    """
    wanted = settings.run.embed_workers
    backend = _cpu_backend(settings)
    most = _MOST_STREAMS if backend == "openvino" else 1
    cores = sum(node_cores)
    measured = best_layout(recipe.revision, backend, recipe.dtype) if recipe and backend else None
    if not wanted and measured and set(node_cores) == {usable_cores()}:
        return measured.processes * len(node_cores), measured.threads
    if wanted:
        # However it computes: fewer processes than cores do not leave cores idle.
        most = _MOST_STREAMS if backend else 1
        return wanted, max(1, min(most, *node_cores, cores // wanted))
    if _hashes(settings):
        return max(1, cores // 4), 1
    for each in range(min(most, *node_cores), 1, -1):
        workers = sum(node // each for node in node_cores)
        if workers * each >= _WORTH_USING * cores:
            return workers, each
    return cores, 1


def segments_at_a_time(embedder: EmbedderSettings, segment_chunks: int) -> int:
    """How many segments of so many chunks an embed worker has in hand at a time.

    One, where it computes. One that asks a provider waits: it has so many that their requests make
    up what it may have under way, and another whose requests fill in while the last ones of a
    segment end, and its vectors are stored.
    """
    if not isinstance(embedder, RemoteEmbedderSettings):
        return 1
    if isinstance(embedder, CompatibleEmbedderSettings):
        texts = embedder.request_inputs
    else:
        texts = embedder.inputs_per_request
    requests = math.ceil(segment_chunks / texts)
    return min(_MOST_SEGMENTS, 1 + math.ceil(embedder.requests_at_a_time / requests))


def _hashes(settings: Settings) -> bool:
    """Whether no model computes: to start a second worker takes longer than it gains."""
    return isinstance(settings.embedder, HashingEmbedderSettings)


def _cpu_backend(settings: Settings) -> Backend | None:
    """What computes a local model, if a CPU does."""
    embedder = settings.embedder
    if not isinstance(embedder, SentenceTransformersSettings):
        return None
    if settings.run.gpus_per_embed_worker:
        return None
    backends = preferred_backends(embedder.device, embedder.dtype)
    backend = next(iter(backends), None) if embedder.backend == "auto" else embedder.backend
    on_cpu = embedder.device == "cpu" or (embedder.device == "auto" and not has_nvidia_driver())
    return backend if on_cpu or backend != "torch" else None


def writers_of(settings: Settings, executor: Executor) -> int:
    """How many writers a run has: the settings', else 4 to 8, as many as the store takes."""
    if not executor.cores:
        return 1
    # Two requests in flight for every core keep a store over the network busy.
    wanted = settings.run.store_writers or max(4, min(8, 2 * executor.cores))
    return min(wanted, store_limits(settings.store).writers, settings.shard_count)


def add_pools(
    dispatcher: Dispatcher,
    context: RunContext,
    sizes: PoolSizes,
    starts: Mapping[int, int],
    *,
    scans: bool = False,
) -> None:
    """Declare the pools of a run, in the order of the stages.

    Args:
        dispatcher: of the run.
        context: of the run.
        sizes: of the pools.
        starts: first segment number of this run by shard.
        scans: the source is read next: what reads it starts beside the store, not after it, by
            which an unchanged source of 20,000 documents takes 2.1 s and not 2.8.
    """
    settings = context.settings
    gpus = settings.run.gpus_per_embed_worker
    dispatcher.add_pool(
        READ, [WorkerSpec(ReadWorker, (settings, sizes.shard_workers))] * sizes.readers
    )
    dispatcher.add_pool(
        SHARD,
        [
            WorkerSpec(ShardWorker, (context, worker, sizes.shard_workers, dict(starts)))
            for worker in range(sizes.shard_workers)
        ],
    )
    for pool in (READ, SHARD) if scans else ():
        dispatcher.start(pool)
    keeper = _keeper(dispatcher, settings)
    if context.by_jobs:
        # One poller for one account; waiting takes no core.
        dispatcher.add_pool(EMBED, [WorkerSpec(EmbeddingJobRunner, (context, keeper))])
    else:
        # A worker that asks a provider waits most of the time.
        cpus = sizes.embed_cpus if rate_budget_of(settings.embedder) is None else 0.0
        embed = WorkerSpec(
            EmbedWorker,
            (context, keeper),
            cpus=float(cpus),
            gpus=gpus,
            at_a_time=sizes.segments_at_a_time,
        )
        dispatcher.add_pool(EMBED, [embed] * sizes.embed_workers)
    dispatcher.add_pool(WRITE, [WorkerSpec(StoreWriter, (context,))] * sizes.writers)


def _keeper(dispatcher: Dispatcher, settings: Settings) -> RunKeeper | None:
    """The run's rate budget, if it has one and no server keeps it."""
    budget = rate_budget_of(settings.embedder)
    if budget is None or budget.shared_by.kind == "redis":
        return None
    spec = WorkerSpec(RateBudgetWorker, (limits_of(budget),), serves=True)
    dispatcher.add_pool(BUDGET, [spec])
    return RunKeeper(dispatcher.line(BUDGET, 0))
