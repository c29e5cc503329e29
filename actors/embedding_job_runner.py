"""Runs a provider's embedding jobs for the driver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from embedmill.assembly import Layers, watched_embedder_of
from embedmill.budget_keeper import BudgetKeeper
from embedmill.counts import ChunkCounts, RateUse
from embedmill.dead_letter import bury_chunks
from embedmill.embedder import EmbeddedTexts
from embedmill.embedding import EmbedOutcome
from embedmill.errors import EmbedmillError
from embedmill.job_assembly import job_runner_of
from embedmill.rate_assembly import limiter_of_run, use_of
from embedmill.run_context import RunContext
from embedmill.scratch_folder import ScratchFolder
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan


@dataclass(frozen=True, slots=True)
class JobsAdvanced:
    """What a call did.

    Attributes:
        done: segments that have vectors now, with the counts of their chunks.
        jobs: that are not collected.
        rows: that wait for a job or are in one.
        wait_s: nothing needs doing earlier than that.
        resting: all that can be sent now was sent, and the provider has it.
        rate: what was used of the provider's limits for realtime requests.
    """

    done: tuple[tuple[SegmentKey, ChunkCounts], ...]
    jobs: int
    rows: int
    wait_s: float
    resting: bool
    rate: RateUse = field(default_factory=RateUse)


class EmbeddingJobRunner:
    """One poller for one account; holds neither a model nor a GPU."""

    def __init__(self, context: RunContext, keeper: BudgetKeeper | None = None) -> None:
        """Take up the jobs that earlier runs left.

        Args:
            context: of the run.
            keeper: of the run's rate budget, for realtime requests.
        """
        self._context = context
        self._layers = Layers(context)
        self._scratch = ScratchFolder("embedmill-jobs-")
        self._limiter = limiter_of_run(context.settings, keeper)
        self._embedder = watched_embedder_of(context, self._layers.workspace, self._limiter)
        try:
            self._runner = job_runner_of(
                context,
                self._layers.workspace,
                self._layers.chunks,
                self._layers.vectors,
                self._embedder,
                self._scratch.path,
            )
        except EmbedmillError:
            self._close_own()
            raise

    def advance(
        self,
        offers: Sequence[tuple[SegmentKey, Sequence[Loan]]],
        flush: bool,  # noqa: FBT001 - of a call over the wire
    ) -> JobsAdvanced:
        """Take new segments and do what is due, without waiting.

        Args:
            offers: segments that need vectors, with their loans.
            flush: no more segments will come soon.

        Raises:
            StopRunError: credentials, money, or a job whose results cannot be used.
            ModelDriftError: the provider's model is not the one it was; nothing was submitted.
        """
        if offers:
            self._embedder.prove()
        for key, loans in offers:
            self._runner.offer(key, loans)
        advance = self._runner.advance(flush=flush)
        for key, outcome in advance.done:
            self._bury(key, outcome)
        done = tuple((key, outcome.counts) for key, outcome in advance.done)
        return JobsAdvanced(
            done,
            advance.jobs,
            advance.rows,
            advance.wait_s,
            advance.resting,
            use_of(self._limiter),
        )

    def queries(self, texts: Sequence[str]) -> EmbeddedTexts:
        """Embed questions, by realtime requests."""
        return self._embedder.embed(texts, "query")

    def close(self) -> None:
        """Close the connections and remove the files on the local disk."""
        self._runner.close()
        self._close_own()

    def _close_own(self) -> None:
        self._embedder.close()
        self._scratch.close()

    def _bury(self, key: SegmentKey, outcome: EmbedOutcome) -> None:
        if outcome.failures:
            bury_chunks(
                self._layers.workspace,
                self._context,
                self._layers.chunks,
                key,
                "embed",
                outcome.failures.values(),
            )
