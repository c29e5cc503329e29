"""Embedding jobs from offer to vectors, in memory: segments, a fake provider, and its bill."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from embedmill.batch_provider import (
    BatchEmbeddingProvider,
    BatchLimits,
    JobHandle,
    JobState,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.chunker import Chunk
from embedmill.document import text_hash
from embedmill.embedder import Embedder, Vectors
from embedmill.embedding import EmbedOutcome
from embedmill.embedding_job import JobPolicy
from embedmill.job_packing import Packer
from embedmill.job_parts import JobParts
from embedmill.job_records import JobRecord, JobRecords
from embedmill.job_runner import Advance, JobRunner
from embedmill.ledger import LedgerEntry
from embedmill.pending_segment import DraftedDocument, PendingSegment
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.request_file import LineTemplate, RequestTemplate
from embedmill.segment import ChunkLayer, SegmentKey
from embedmill.testing.crash_points import (
    CrashingEmbedder,
    CrashingWorkspace,
    Effect,
    Process,
)
from embedmill.testing.fake_batch_provider import FakeBatchProvider, HandClock, ProviderFault
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.text_index import Loan
from embedmill.vector_layer import DEAD, SUPERSEDED, VectorLayer

KNOWN = ("the first known text", "the second known text")
TEMPLATE = RequestTemplate({"method": "POST", "url": "/v1/embeddings", "body": {"model": "words"}})
_CHUNKING = ChunkingRecipe("text", 1, "none", "words", 100, 0, "refuse", "none")


class RehearsedProvider(BatchEmbeddingProvider, Embedder, Protocol):
    """A provider with a realtime endpoint whose vectors and charges are known."""

    def model_of(self, texts: Sequence[str]) -> Vectors:
        """The right vectors of texts, free of charge."""
        ...

    def charged_twice(self) -> dict[str, int]:
        """Texts that were charged for more than once."""
        ...


class CrashingProvider:
    """A provider whose submissions and cancellations happen in a process."""

    def __init__(self, real: BatchEmbeddingProvider, process: Process) -> None:
        self.kind = real.kind
        self.limits = real.limits
        self._real = real
        self._process = process

    def submit(
        self,
        requests: RequestFile,
        *,
        job_key: str,
        fingerprint: str,
        uploaded_since: datetime | None = None,
    ) -> JobHandle:
        """One effect."""
        return self._process.effect(
            Effect("submit", job_key),
            lambda: self._real.submit(
                requests,
                job_key=job_key,
                fingerprint=fingerprint,
                uploaded_since=uploaded_since,
            ),
        )

    def cancel(self, job: JobHandle) -> None:
        """One effect."""
        self._process.effect(Effect("cancel", job.job_id), lambda: self._real.cancel(job))

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """No effect."""
        self._process.alive()
        return self._real.find(job_key=job_key, fingerprint=fingerprint, since=since)

    def state(self, job: JobHandle) -> JobState:
        """No effect."""
        self._process.alive()
        return self._real.state(job)

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """No effect."""
        self._process.alive()
        return self._real.outcomes(job)

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """No effect."""
        self._process.alive()
        return self._real.list_jobs(since)


@dataclass(frozen=True, slots=True)
class _Names:
    chunking: ChunkingRecipe
    embedding: EmbeddingRecipe


@dataclass(slots=True)
class Fates:
    """Where every row of every segment ended.

    Attributes:
        vectors: texts with the right vector, by place.
        dead: code, by place.
        open: segments without vectors.
        superseded: places without a vector, for nobody wants one.
        wrong: places with another text's vector.
    """

    vectors: dict[tuple[SegmentKey, int], str] = field(default_factory=dict)
    dead: dict[tuple[SegmentKey, int], str] = field(default_factory=dict)
    open: list[SegmentKey] = field(default_factory=list)
    superseded: list[tuple[SegmentKey, int]] = field(default_factory=list)
    wrong: list[tuple[SegmentKey, int]] = field(default_factory=list)


class JobRehearsal:
    """Segments that want vectors, and everything that outlives a process.

    Attributes:
        clock: of the machine and of the provider.
        provider: with the bill.
        template: of its requests.
        workspace: holds all records.
        texts: of each segment.
        loans: of each segment.
        policy: of the runners.
        options: further ``JobParts``, for ``realtime_below``, ``deadline`` and the like.
        auto: small remainders go to the realtime endpoint.
        canaries: known texts at the beginning of every file.
        inputs_per_request: texts of one request.
        done: what the runners said was done, and how often.
    """

    def __init__(
        self,
        *faults: ProviderFault,
        limits: BatchLimits | None = None,
        canaries: int = 2,
        **provider: Any,  # noqa: ANN401 - handed on
    ) -> None:
        self.clock = HandClock(datetime(2026, 1, 1, tzinfo=UTC))
        self._begin(FakeBatchProvider(self.clock, faults, limits=limits, **provider), canaries)

    @classmethod
    def at(
        cls,
        provider: RehearsedProvider,
        template: LineTemplate,
        clock: HandClock,
        *,
        canaries: int = 2,
    ) -> Self:
        """A rehearsal at another provider.

        Args:
            provider: that takes the jobs; closed by the caller.
            template: of its requests.
            clock: of the machine.
            canaries: known texts at the beginning of every file.
        """
        made = cls.__new__(cls)
        made.clock = clock
        made._begin(provider, canaries)  # noqa: SLF001 - of this class
        made.template = template
        return made

    def _begin(self, provider: Any, canaries: int) -> None:  # noqa: ANN401 - see ``at``
        self.provider = provider
        self.template: LineTemplate = TEMPLATE
        self.workspace = MemoryWorkspace()
        self.names = _Names(_CHUNKING, self.provider.recipe)
        self.chunks = ChunkLayer(self.workspace, "jobs", _CHUNKING.id)
        self.vectors = VectorLayer.of_version(self.workspace, "jobs", self.names)
        self.texts: dict[SegmentKey, list[str]] = {}
        self.loans: dict[SegmentKey, list[Loan]] = {}
        self.policy = JobPolicy(poll_first=15, poll_most=600)
        self.options: dict[str, Any] = {}
        self.auto = False
        self.canaries = KNOWN[:canaries]
        self.inputs_per_request = 1
        self.done: list[tuple[SegmentKey, EmbedOutcome]] = []
        self._folder = ""
        self._lives = 0

    def add(
        self,
        shard: int,
        number: int,
        texts: Sequence[str],
        *,
        loans: Sequence[Loan] = (),
        same_as: Sequence[tuple[int, int]] = (),
        instead_of: Mapping[int, tuple[int, int]] | None = None,
        gone: Sequence[tuple[int, int]] = (),
    ) -> SegmentKey:
        """Commit a segment, each text a document; ten tokens each unless a number follows '#'.

        Args:
            shard: of the segment.
            number: of the segment.
            texts: of its documents.
            loans: see ``JobRunner.offer``.
            same_as: of each document, segment and row with the same text, or (-1, -1).
            instead_of: of some documents, segment and row of their earlier version.
            gone: segment and row of documents that are deleted.
        """
        key = SegmentKey(shard, number)
        pending = PendingSegment()
        for row, text in enumerate(texts):
            tokens = int(text.partition("#")[2] or 10)
            chunks = [Chunk(text, 0, len(text), tokens)]
            hint = same_as[row] if same_as else (-1, -1)
            earlier = (instead_of or {}).get(row)
            name = f"{earlier or (number, row)}"
            before = None if earlier is None else _entry(earlier[0])
            pending.add(
                DraftedDocument(
                    name, b"f" * 16, "", "{}", chunks, [text_hash(text)], [hint], before
                )
            )
        for earlier in gone:
            pending.add(DraftedDocument.deletion(f"{earlier}", _entry(earlier[0])))
        self.chunks.commit(key, *pending.tables())
        self.texts[key] = list(texts)
        self.loans[key] = list(loans)
        return key

    def _runner(self, process: Process | None = None) -> JobRunner:
        self._lives += 1
        scratch = Path(tempfile.mkdtemp(prefix="life-", dir=self._folder))
        process = process or Process()
        workspace = CrashingWorkspace(self.workspace, process)
        chunks = ChunkLayer(workspace, "jobs", _CHUNKING.id)
        provider = CrashingProvider(self.provider, process)
        realtime: Embedder = CrashingEmbedder(self.provider, process)
        parts = JobParts(
            chunks=chunks,
            vectors=VectorLayer.of_version(workspace, "jobs", self.names),
            records=JobRecords(workspace, "jobs", self.names),
            provider=provider,
            packer=Packer(
                chunks,
                self.template,
                provider.limits,
                scratch,
                inputs_per_request=self.inputs_per_request,
                canaries=self.canaries,
            ),
            dimension=self.provider.recipe.dimension,
            canaries=self.provider.model_of(self.canaries) if self.canaries else None,
            scratch=scratch,
            clock=self.clock,
            dice=random.Random(self._lives),  # noqa: S311 - jitter
            policy=self.policy,
            realtime=realtime if self.auto else None,
            **self.options,
        )
        return JobRunner(parts)

    def waiting(self) -> list[SegmentKey]:
        """Segments without vectors, in the order of a resumed run."""
        return [key for key in sorted(self.texts) if not self.vectors.exists(key)]

    def run(
        self, process: Process | None = None, *, wait: bool = True, limit: int = 2_000
    ) -> list[Advance]:
        """One process: offer what lacks vectors, then advance until all have them.

        Args:
            process: that it happens in.
            wait: False ends it when the provider has all that can be sent.
            limit: advances after which it counts as hung.
        """
        with tempfile.TemporaryDirectory(prefix="job-rehearsal-") as self._folder:
            runner = self._runner(process)
            left = self.waiting()
            for key in left:
                runner.offer(key, self.loans[key])
            return self._advanced(runner, set(left), wait=wait, limit=limit)

    def _advanced(
        self, runner: JobRunner, left: set[SegmentKey], *, wait: bool, limit: int
    ) -> list[Advance]:
        advances: list[Advance] = []
        while left:
            advance = runner.advance(flush=True)
            advances.append(advance)
            self.done += advance.done
            left -= {key for key, _ in advance.done}
            if not wait and advance.resting and advance.jobs:
                break
            if left and advance.resting and not (advance.jobs or advance.wait_s):
                raise AssertionError(f"nothing brings vectors to {sorted(left)}")
            if len(advances) > limit:
                raise AssertionError(f"no end after {limit} advances")
            self.clock.sleep(max(advance.wait_s, 0.2))
        return advances

    def records(self) -> list[JobRecord]:
        """Of all jobs, oldest first."""
        records = JobRecords(self.workspace, "jobs", self.names).all()
        return sorted(records, key=lambda record: record.intent.created)

    def fates(self) -> Fates:
        """Where every row ended."""
        fates = Fates()
        for key, texts in sorted(self.texts.items()):
            if not self.vectors.exists(key):
                fates.open.append(key)
                continue
            stored = self.vectors.read(key, self.chunks.chunks(key)[1])
            expected = self.provider.model_of(texts)
            for row, text in enumerate(texts):
                if stored.origin[row] == DEAD:
                    fates.dead[key, row] = stored.failures[row][0]
                elif stored.origin[row] == SUPERSEDED:
                    fates.superseded.append((key, row))
                elif np.allclose(stored.vectors[row], expected[row], atol=1e-6):
                    fates.vectors[key, row] = text
                else:
                    fates.wrong.append((key, row))
        return fates

    def paid_twice(self) -> dict[str, int]:
        """Texts, known ones left out, that were charged for more than once."""
        twice = self.provider.charged_twice()
        return {text: times for text, times in twice.items() if text not in KNOWN}


def _entry(segment: int) -> LedgerEntry:
    return LedgerEntry(b"f" * 16, 1, segment, was_known=False)
