"""Settings in, a live runner of embedding jobs out."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from embedmill.batch_provider import BatchEmbeddingProvider, BatchLimits
from embedmill.cohere_settings import CohereEmbedderSettings
from embedmill.embedder import Embedder, Vectors
from embedmill.embedding_job import JobPolicy
from embedmill.errors import RefusedError, SettingsError
from embedmill.extras import extra
from embedmill.job_packing import Packer
from embedmill.job_parts import JobParts
from embedmill.job_records import JobRecords
from embedmill.job_runner import JobRunner
from embedmill.job_settings import EmbeddingJobSettings
from embedmill.job_summary import open_summaries
from embedmill.openai_settings import OpenAIEmbedderSettings
from embedmill.rate_assembly import account_of
from embedmill.recipe import EmbeddingRecipe
from embedmill.request_file import LineTemplate
from embedmill.run_context import RunContext
from embedmill.sealed_json import sealed, unsealed
from embedmill.segment import ChunkLayer
from embedmill.settings import EmbedderSettings, Settings
from embedmill.unfinished_jobs import UnfinishedJobs, unfinished_jobs
from embedmill.vector_layer import LayerNames, VectorLayer
from embedmill.voyage_settings import VoyageEmbedderSettings
from embedmill.work_left import lacking_vectors
from embedmill.workspace import Workspace, create_once

# Plain sentences of different fields, so that two swapped answers cannot look alike.
KNOWN_TEXTS = (
    "The lighthouse keeper wrote down the height of the tide every morning.",
    "A balanced binary tree keeps its depth logarithmic in the number of nodes.",
    "Simmer the lentils with cumin until they are soft but still whole.",
    "The court held that silence alone is not acceptance of an offer.",
    "Glaciers carve valleys with a profile shaped like the letter U.",
    "Her violin was tuned a quarter tone below the rest of the orchestra.",
    "Enzymes lower the activation energy of a reaction without being consumed.",
    "The train to the border leaves from platform nine at dawn.",
    "Compound interest grows with the square of patience, her uncle used to joke.",
    "Bees tell each other the direction of food by dancing.",
    "The printer jams whenever the humidity rises above eighty percent.",
    "Medieval maps often placed east at the top.",
    "A hash function maps keys of any length to numbers of a fixed one.",
    "The goalkeeper saved two penalties in the final minutes.",
    "Old oak barrels give the vinegar its colour.",
    "Gravity bends the path of light near massive bodies.",
)


# What their adapters import that not every installation has.
_MODULES = ("openai", "httpx2", "fastavro", "msgspec", "pybase64", "simdjson", "urllib3")
# Settings of embedders whose provider has jobs.
HAVING_JOBS = (OpenAIEmbedderSettings, VoyageEmbedderSettings, CohereEmbedderSettings)


def uses_jobs(settings: Settings) -> bool:
    """Whether the embedder of these settings works through a provider's jobs."""
    embedder = settings.embedder
    return isinstance(embedder, HAVING_JOBS) and embedder.mode != "realtime"


def jobs_left(settings: Settings, version: LayerNames, workspace: Workspace) -> UnfinishedJobs:
    """What jobs of earlier runs still bring to a version, whatever its settings ask for now.

    A run that did not look would pay for their rows again, and forget the jobs.
    """
    if not isinstance(settings.embedder, HAVING_JOBS):
        return UnfinishedJobs()
    chunks = ChunkLayer(workspace, settings.index, version.chunking.id)
    vectors = VectorLayer.of_version(workspace, settings.index, version)
    records = job_records(settings, version, workspace)
    return unfinished_jobs(records, lacking_vectors(chunks, vectors))


@dataclass(frozen=True, slots=True)
class OpenJobs:
    """Jobs of a version without an outcome, as ``job_summary.open_summaries`` tells of them.

    Attributes:
        needed: their rows are waited for.
        unneeded: all their rows have vectors; see ``job_summary.unneeded_line``.
    """

    needed: tuple[dict[str, Any], ...] = ()
    unneeded: tuple[dict[str, Any], ...] = ()


def open_jobs(settings: Settings, version: LayerNames, workspace: Workspace) -> OpenJobs:
    """Jobs of a version that have not ended."""
    left = jobs_left(settings, version, workspace)
    price = price_per_million(settings.embedder)
    return OpenJobs(
        tuple(open_summaries(left.jobs, price)), tuple(open_summaries(left.unneeded, price))
    )


def price_per_million(settings: EmbedderSettings) -> float | None:
    """Dollars for a million tokens in jobs; None: not known."""
    return settings.jobs.dollars_per_million_tokens if isinstance(settings, HAVING_JOBS) else None


def job_records(settings: Settings, version: LayerNames, workspace: Workspace) -> JobRecords:
    """Records of the jobs of an index version."""
    return JobRecords(workspace, settings.index, version)


def build_provider(
    settings: EmbedderSettings, recipe: EmbeddingRecipe, *, read_retries: int = 2
) -> tuple[BatchEmbeddingProvider, LineTemplate]:
    """The provider of the settings, and what its requests look like.

    Args:
        settings: of the embedder.
        recipe: of the vectors.
        read_retries: how often a question that fails is repeated within one call.

    Raises:
        MissingExtraError: an optional package is not installed.
        SettingsError: the embedder has no jobs, or its key is not set.
    """
    # The extras are called as the kinds are.
    with extra("sending embedding jobs", f"pip install 'embedmill[{settings.kind}]'", _MODULES):
        return _built_provider(settings, recipe, read_retries)


def _built_provider(
    settings: EmbedderSettings, recipe: EmbeddingRecipe, read_retries: int
) -> tuple[BatchEmbeddingProvider, LineTemplate]:
    if isinstance(settings, OpenAIEmbedderSettings):
        from embedmill.batch_providers.openai import OpenAIBatchProvider
        from embedmill.batch_providers.openai_limits import limits_of, request_template

        template = request_template(recipe, settings.encoding_format)
        limits = limits_of(settings)
        return OpenAIBatchProvider(
            settings, recipe, limits=limits, read_retries=read_retries
        ), template
    if isinstance(settings, VoyageEmbedderSettings):
        from embedmill.batch_providers.voyage import voyage_provider
        from embedmill.batch_providers.voyage_limits import VOYAGE_TEMPLATE

        return voyage_provider(settings, recipe, read_retries=read_retries), VOYAGE_TEMPLATE
    if isinstance(settings, CohereEmbedderSettings):
        from embedmill.batch_providers.cohere_limits import DatasetTemplate, batch_template

        if settings.jobs_through == "batches":
            from embedmill.batch_providers.cohere_batches import batch_provider

            return batch_provider(settings, recipe), batch_template(recipe)
        from embedmill.batch_providers.cohere_embed_jobs import embed_job_provider

        return embed_job_provider(settings, recipe), DatasetTemplate()
    raise SettingsError(f"an embedder of kind {settings.kind} has no embedding jobs")


def job_runner_of(
    context: RunContext,
    workspace: Workspace,
    chunks: ChunkLayer,
    vectors: VectorLayer,
    realtime: Embedder,
    scratch: Path,
) -> JobRunner:
    """The runner of a run's embedding jobs.

    Args:
        context: of the run.
        workspace: of the index.
        chunks: of the version.
        vectors: of the version.
        realtime: the same model without jobs; used for known texts, and for rows in mode ``auto``,
            or in mode ``realtime`` for whatever no job has.
        scratch: local folder; holds a file of requests and the results of one job at a time.
    """
    settings = context.settings.embedder
    assert isinstance(settings, HAVING_JOBS)
    jobs = settings.jobs
    # The runner asks again by itself, and does not sleep while it does.
    provider, template = build_provider(settings, context.embedding, read_retries=0)
    texts = KNOWN_TEXTS[: jobs.canaries]
    by_jobs_alone = settings.mode == "batch"
    parts = JobParts(
        chunks=chunks,
        vectors=vectors,
        records=job_records(context.settings, context, workspace),
        provider=provider,
        packer=_packer(jobs, chunks, template, provider.limits, scratch, texts),
        dimension=context.embedding.dimension,
        canaries=known_vectors(workspace, context, texts, realtime) if texts else None,
        scratch=scratch,
        clock=_now,
        dice=random.Random(context.run),  # noqa: S311 - jitter, no secret
        policy=_policy(settings),
        realtime=None if by_jobs_alone else realtime,
        realtime_below=jobs.realtime_below,
        new_jobs=settings.mode != "realtime",
        deadline=None if by_jobs_alone else _deadline(jobs, context.run),
        stale_share=jobs.stale_share if jobs.on_stale_input == "cancel" else None,
        account=account_of(settings),
    )
    return JobRunner(parts)


def _packer(
    jobs: EmbeddingJobSettings,
    chunks: ChunkLayer,
    template: LineTemplate,
    limits: BatchLimits,
    scratch: Path,
    canaries: Sequence[str],
) -> Packer:
    return Packer(
        chunks,
        template,
        limits,
        scratch,
        inputs_per_request=jobs.inputs_per_request,
        canaries=canaries,
        inputs_per_file=jobs.inputs_per_file,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _deadline(jobs: EmbeddingJobSettings, run: str) -> datetime | None:
    """From the beginning of the run on, which its id tells, whoever takes over its runner."""
    if jobs.deadline_hours is None:
        return None
    return datetime.strptime(run, "%Y%m%dT%H%M%S%z") + timedelta(hours=jobs.deadline_hours)


def _policy(
    settings: OpenAIEmbedderSettings | VoyageEmbedderSettings | CohereEmbedderSettings,
) -> JobPolicy:
    jobs = settings.jobs
    policy = JobPolicy(
        poll_first=jobs.poll_seconds, poll_most=jobs.poll_most_seconds, row_tries=jobs.row_tries
    )
    if isinstance(settings, VoyageEmbedderSettings):
        # Voyage advises half an hour, as often as it takes.
        return replace(policy, queue_full_wait=1800.0)
    return policy


def known_vectors(
    workspace: Workspace, context: RunContext, texts: tuple[str, ...], embedder: Embedder
) -> Vectors:
    """Vectors of known texts, asked for once in the life of an embedding recipe.

    Raises:
        RefusedError: the model does not embed them.
    """
    names = f"{context.chunking.id}/{context.embedding.id}"
    path = f"indexes/{context.settings.index}/jobs/{names}/known-{len(texts)}.json"
    data = workspace.read(path)
    if data is None:
        embedded = embedder.embed(texts, "document")
        if embedded.failures:
            reason = next(iter(embedded.failures.values()))
            raise RefusedError(f"the model does not embed plain sentences: {reason}")
        body = {"recipe": asdict(context.embedding), "vectors": embedded.vectors.tolist()}
        create_once(workspace, path, sealed(body))
        return embedded.vectors
    return np.array(unsealed(data, path)["vectors"], dtype=np.float32)
