"""What embedding jobs are made with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from embedmill.batch_provider import BatchEmbeddingProvider
from embedmill.embedder import Embedder, Vectors
from embedmill.embedding_job import JobPolicy
from embedmill.job_packing import Packer
from embedmill.job_records import JobRecords
from embedmill.segment import ChunkLayer
from embedmill.vector_layer import VectorLayer


@dataclass(frozen=True, slots=True)
class JobParts:
    """All of it; the same for the life of a runner.

    Attributes:
        chunks: hold the texts.
        vectors: take the vectors.
        records: of jobs.
        provider: talks to the provider.
        packer: writes request files.
        dimension: of the vectors.
        canaries: expected vectors of the packer's known texts, or None.
        scratch: local folder.
        clock: UTC now.
        dice: for jitter.
        policy: how patient to be.
        realtime: the same model without jobs, for what is too little or too late for one; None:
            everything goes through jobs.
        realtime_below: rows; fewer that are left over go to ``realtime``.
        deadline: UTC; what is not done then goes to ``realtime``, its jobs are cancelled.
        stale_share: a job is cancelled when at least this share of its rows is not wanted any more;
            None: jobs are left to finish, rows are sent whether they are wanted or not.
        account: digest of the provider's address and key; see ``JobRecord.require_account``.
        new_jobs: False: none is created, whatever has no job yet goes to ``realtime``.
    """

    chunks: ChunkLayer
    vectors: VectorLayer
    records: JobRecords
    provider: BatchEmbeddingProvider
    packer: Packer
    dimension: int
    canaries: Vectors | None
    scratch: Path
    clock: Callable[[], datetime]
    dice: random.Random
    policy: JobPolicy = field(default_factory=JobPolicy)
    realtime: Embedder | None = None
    realtime_below: int = 0
    deadline: datetime | None = None
    stale_share: float | None = None
    account: str = ""
    new_jobs: bool = True
