"""How many workers of each kind a run has, and what each may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actors.embed_worker import EmbedWorker
from actors.embedding_job_runner import EmbeddingJobRunner
from actors.rate_budget import RateBudgetWorker, RunKeeper
from actors.read_worker import ReadWorker
from actors.shard_worker import ShardWorker
from actors.store_writer import StoreWriter
from embedmill.executor import Executor, WorkerSpec
from embedmill.job_assembly import uses_jobs
from embedmill.rate_assembly import limits_of, rate_budget_of
from embedmill.run_context import RunContext
from embedmill.settings import Settings
from embedmill.vector_stores.build import store_limits
from pipelines.dispatcher import Dispatcher
from pipelines.filling import EMBED, WRITE
from pipelines.scan import READ, SHARD

BUDGET = "rate budget"


@dataclass(frozen=True, slots=True)
class PoolSizes:
    """Workers of each kind."""

    readers: int
    shard_workers: int
    embed_workers: int
    writers: int


def pool_sizes(settings: Settings, executor: Executor) -> PoolSizes:
    """Decide the sizes: the settings', else by the machine.

    An executor without cores runs one worker of each kind: they take turns anyway.
    """
    run = settings.run
    cores = executor.cores
    if not cores:
        return PoolSizes(1, 1, 1, 1)
    writers = min(run.store_writers or 4, store_limits(settings.store).writers)
    return PoolSizes(
        readers=max(1, min(4, cores // 4)),
        # Chunking takes a tenth of what embedding takes on a CPU.
        shard_workers=min(run.shard_workers or max(1, cores // 4), settings.shard_count),
        embed_workers=run.embed_workers or cores,
        writers=min(writers, settings.shard_count),
    )


def add_pools(
    dispatcher: Dispatcher, context: RunContext, sizes: PoolSizes, starts: Mapping[int, int]
) -> None:
    """Declare the pools of a run, in the order of the stages."""
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
    keeper = _keeper(dispatcher, settings)
    if uses_jobs(settings):
        # One poller for one account; waiting takes no core.
        dispatcher.add_pool(EMBED, [WorkerSpec(EmbeddingJobRunner, (context, keeper))])
    else:
        # A worker that asks a provider waits most of the time.
        cpus = 1.0 if rate_budget_of(settings.embedder) is None else 0.0
        embed = WorkerSpec(EmbedWorker, (context, keeper), cpus=cpus, gpus=gpus)
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
