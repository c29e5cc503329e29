"""The embedding stage of providers' jobs: offer segments to the runner, ask it now and then.

Waiting for a job holds no call and no worker that could do something else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from actors.embedding_job_runner import JobsAdvanced
from embedmill.counts import ChunkCounts, RateUse
from embedmill.errors import TransientError, WorkerDiedError
from embedmill.executor import Done
from embedmill.plain_numbers import number_of
from embedmill.rate_assembly import rate_budget_of
from embedmill.run_context import RunContext
from embedmill.segment import SegmentKey
from embedmill.text_index import Loan
from pipelines.dispatcher import Dispatcher
from pipelines.embed_stage import EMBED, EmbedStage
from pipelines.faults import FaultPolicy
from pipelines.run_options import RunOptions

# Segments offered in one call: offering reads their chunks.
_OFFERED_AT_ONCE = 64
# Between two questions to the runner at least, whatever it says.
_PAUSE_S = 0.2
# What a question to the runner is called when it fails.
_ASKING = "progress", "the embedding jobs"


def embed_stage(
    context: RunContext,
    options: RunOptions,
    dispatcher: Dispatcher,
    faults: FaultPolicy,
    workers: int,
    *,
    on_embedded: Callable[[SegmentKey], None],
    more_to_come: Callable[[], bool],
) -> EmbedStage | JobStage:
    """The stage that gives segments their vectors: by a provider's jobs, or in workers."""
    if not context.by_jobs:
        provider = rate_budget_of(context.settings.embedder) is not None
        return EmbedStage(dispatcher, faults, workers, on_embedded, one_model=provider)
    return JobStage(
        dispatcher, faults, on_embedded, more_to_come=more_to_come, wait=options.wait_for_jobs
    )


class JobStage:
    """Has segments embedded by a provider's jobs. One runner, one poller."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        faults: FaultPolicy,
        on_embedded: Callable[[SegmentKey], None],
        *,
        more_to_come: Callable[[], bool],
        wait: bool,
    ) -> None:
        """Prepare; nothing runs before the first :meth:`pump`.

        Args:
            dispatcher: submits calls.
            faults: decides on failures; its clock is this stage's.
            on_embedded: told of every segment that has vectors.
            more_to_come: whether new segments may still be added; files that are not full are
                held back until then.
            wait: False ends the stage once everything is submitted.
        """
        self._dispatcher = dispatcher
        self._faults = faults
        self._on_embedded = on_embedded
        self._more_to_come = more_to_come
        self._wait = wait
        self._loans: dict[SegmentKey, Sequence[Loan]] = {}
        self._new: list[SegmentKey] = []
        self._asking = False
        self._due = 0.0
        # After a failure nothing is asked before this time, whatever there is to say.
        self._not_before = 0.0
        self._flushed = False
        # Whether the last question that failed was one to send everything, and how many segments
        # the new runner has to be offered before it is in that place again.
        self._failed_flush = False
        self._owed = 0
        self._resting = False
        self.jobs = 0
        self.counts = ChunkCounts()
        self.rate = RateUse()

    @property
    def idle(self) -> bool:
        """Every segment has vectors."""
        return not self._loans

    @property
    def parked(self) -> bool:
        """All that can be done now is done: the provider's jobs go on without us."""
        nothing_new = not self._new and not self._asking
        return not self._wait and self._flushed and nothing_new and self._resting and self.jobs > 0

    @property
    def retrying(self) -> bool:
        """The runner waits for the time of its next question."""
        return bool(self._loans) and not self._asking

    @property
    def waiting(self) -> int:
        """Segments without vectors."""
        return len(self._loans)

    def expect(self, documents: int) -> None:
        """Nothing: a runner has no model to load."""

    def get_ready(self) -> None:
        """Nothing, likewise."""

    def add(
        self, key: SegmentKey, loans: Sequence[Loan] = (), stale: frozenset[int] = frozenset()
    ) -> None:
        """A segment needs vectors.

        Args:
            key: the segment.
            loans: rows that may take the vector of an equal text elsewhere in this run.
            stale: the runner finds out itself, where ``jobs.on_stale_input`` asks it to.
        """
        del stale
        self._loans[key] = loans
        self._new.append(key)
        self._flushed = False

    def pump(self) -> None:
        """Ask the runner, when there is something to say or it is time to ask."""
        if self._asking or self.parked or not self._loans:
            return
        if self._faults.clock() < self._not_before:
            return
        flush = len(self._new) <= _OFFERED_AT_ONCE and not self._more_to_come()
        to_say = bool(self._new) or (flush and not self._flushed)
        if not to_say and self._faults.clock() < self._due:
            return
        offered = self._new[:_OFFERED_AT_ONCE]
        del self._new[:_OFFERED_AT_ONCE]
        self._owed = max(0, self._owed - len(offered))
        self._asking = True
        self._dispatcher.call(
            (EMBED, 0),
            "advance",
            tuple((key, tuple(self._loans[key])) for key in offered),
            flush,
            then=lambda done: self._on_done(flush, done),
        )

    def _on_done(self, flush: bool, done: Done) -> None:  # noqa: FBT001 - of one call
        self._asking = False
        if isinstance(done.error, WorkerDiedError):
            self._offer_all_again(flush)
            return
        if done.error is not None:
            self._start_anew(done)
            self._offer_all_again(flush)
            return
        advanced: JobsAdvanced = done.value
        passed = not self._owed and (flush or not self._failed_flush)
        if passed:
            self._failed_flush = False
            self._faults.went_well(_ASKING)
        if passed or advanced.done:
            self._faults.committed()
        self.jobs = advanced.jobs
        self.rate += advanced.rate
        self._flushed = flush
        self._resting = advanced.resting
        for key, counts in advanced.done:
            self.counts += counts
            del self._loans[key]
            self._on_embedded(key)
        # Without jobs there is nothing to ask about until there is something to say.
        asks = advanced.jobs or advanced.wait_s or not advanced.resting
        pause = max(advanced.wait_s, _PAUSE_S) if asks else math.inf
        if pause == math.inf and flush and self._loans and not self._new:
            waiting = number_of(len(self._loans), "segment")
            raise RuntimeError(f"vectors are lacking for {waiting}, and no job brings any")
        self._due = self._faults.clock() + pause

    def _start_anew(self, done: Done) -> None:
        """The runner was interrupted between two records: a new one reads them all."""
        self._not_before = self._faults.wait_before_retry(_ASKING, done)
        error = done.error if isinstance(done.error, TransientError) else None
        self._dispatcher.discard((EMBED, 0), error or TransientError(str(done.error)))

    def _offer_all_again(self, flush: bool) -> None:  # noqa: FBT001 - of the call that failed
        """A new runner knows the jobs from their records, but not what it is offered."""
        self._new = list(self._loans)
        self._owed = len(self._new)
        self._failed_flush = self._failed_flush or flush
        self._flushed = False
