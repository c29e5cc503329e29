"""The end of an embedding job: what it brought is kept, and every row of it gets its fate.

A fate is written down once, as the job's outcome: the row has its vector, is to be sent again, or
is dead.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice

from embedmill import job_stops
from embedmill.batch_provider import NO_CREDIT, JobState
from embedmill.embedding_job import buckets_of, verdict_on_row
from embedmill.errors import StopRunError
from embedmill.job_collecting import Collected, FailedRow
from embedmill.job_desk import Ending, JobDesk
from embedmill.job_file_sizes import FileSizes
from embedmill.job_parts import JobParts
from embedmill.job_records import TOO_LARGE, UNNEEDED, Intent, JobOutcome, outcome_of_too_large
from embedmill.job_rows import RowHistory
from embedmill.job_segments import WaitingSegments
from embedmill.segment import SegmentKey

log = logging.getLogger(__name__)
# Jobs of before that are looked at for what the provider takes, and how many times as long as
# their usual text one has to be that is refused for its own size.
_LOOKED_AT, _VERY_LONG = 5, 2


class JobEndings:
    """Closes jobs.

    Attributes:
        stop: why the run has to end; None: it may go on.
    """

    def __init__(
        self,
        parts: JobParts,
        desk: JobDesk,
        segments: WaitingSegments,
        history: RowHistory,
        sizes: FileSizes,
    ) -> None:
        """Close jobs of a desk.

        Args:
            parts: what jobs are made with.
            desk: that has them.
            segments: that wait for their vectors.
            history: of their rows.
            sizes: what is known of the files that the provider takes.
        """
        self.stop: StopRunError | None = None
        self._p = parts
        self._desk = desk
        self._segments = segments
        self._history = history
        self._sizes = sizes

    def end(self, ending: Ending) -> bool:
        """Close a job that is at its end; True when the provider's queue is full of others."""
        full = self._end(ending)
        if ending.intent.key == self._sizes.probe:
            self._sizes.probe = ""
            if ending.state is not None and ending.state.taken:
                self.blame_texts()
        return full

    def _end(self, ending: Ending) -> bool:
        intent, state = ending.intent, ending.state
        if ending.status == TOO_LARGE:
            self._too_large(intent, ending.given_up)
        elif ending.given_up:
            self._let_be(ending)
        elif ending.collected is None:
            assert state is not None
            return self._refused(intent, state)
        else:
            assert state is not None
            with ending.collected as collected:
                if collected.problem:
                    self._quarantine(intent, state, collected)
                else:
                    self._finish(intent, state, collected)
        return False

    def look_at_probe(self) -> None:
        """A file that the provider has taken clears the account: the suspects are to blame."""
        probe = self._sizes.probe
        if probe and any(intent.key == probe for intent in self._desk.taken()):
            self.blame_texts()

    def blame_texts(self) -> None:
        """Texts that were refused alone are dead."""
        for suspect in self._sizes.judged():
            outcome = outcome_of_too_large(suspect.intent, suspect.said, self._p.clock())
            self._write(suspect.intent, outcome)

    def clear_texts(self) -> None:
        """Texts that were refused alone are open again."""
        for suspect in self._sizes.judged():
            outcome = outcome_of_too_large(suspect.intent, suspect.said, self._p.clock())
            self._write(suspect.intent, replace(outcome, again=suspect.intent.rows(), dead=()))

    def _let_be(self, ending: Ending) -> None:
        """Nothing can come of a job, or nothing is wanted of it."""
        intent, status = ending.intent, ending.status
        needed = self._segments.wait_for(intent.rows())
        tokens = 0 if ending.state is None else ending.state.tokens
        self._give_up(intent, status, ending.given_up, tokens=tokens)
        if status not in {"abandoned", UNNEEDED} and needed:
            stop = job_stops.refused if status == "refused" else job_stops.gone
            self.stop = stop(intent.key, ending.given_up)

    def _refused(self, intent: Intent, state: JobState) -> bool:
        """The job brought nothing: it never ran and cost nothing, or what it did is lost."""
        if state.status != "failed":
            self._give_up(intent, state.status, "it ended without results", tokens=state.tokens)
            return False
        said = "; ".join(f"{e.code}: {e.message}" for e in state.errors) or state.raw_status
        if state.too_large:
            self._too_large(intent, said)
            return False
        self._give_up(intent, "failed", said, tokens=state.tokens or 0)
        if not state.queue_full:
            self.stop = job_stops.failed(intent.key, said, unpaid=state.unpaid)
        return state.queue_full

    def _too_large(self, intent: Intent, said: str) -> None:
        """The provider takes no file of this size: half of it is sent, or another text alone."""
        if intent.inputs > 1:
            told = "embedding job %s, too large with %d texts, is sent in parts: %s"
            log.warning(told, intent.key, intent.inputs, said)
        else:
            log.warning("embedding job %s is too large with one text: %s", intent.key, said)
        doubtful = intent.inputs == 1 and not self._is_very_long(intent)
        self._sizes.refuse(intent, said, self._p.clock(), doubtful=doubtful)
        if not doubtful:
            self._close(intent, outcome_of_too_large(intent, said, self._p.clock()))
            return
        # Closed when it is known whose fault it is.
        self._desk.close(intent.key)
        if self._sizes.is_hopeless(chain(self._desk.sent(), self._p.records.taken())):
            self.stop = job_stops.nothing_passes(self._sizes.doubtful, said)
            self.clear_texts()

    def _is_very_long(self, intent: Intent) -> bool:
        """Whether a text is so much longer than those the provider takes that it is to blame."""
        taken = [*self._desk.taken(), *islice(self._p.records.taken(), _LOOKED_AT)]
        ((key, (row,)),) = intent.rows().items()
        tokens = self._p.chunks.chunks(key)[0].column("token_count")[row].as_py()
        usual = max((it.tokens / it.inputs for it in taken), default=None)
        return usual is not None and bool(tokens > _VERY_LONG * usual)

    def _quarantine(self, intent: Intent, state: JobState, collected: Collected) -> None:
        tokens = state.tokens if state.tokens is not None else collected.tokens or None
        self._give_up(intent, "quarantined", collected.problem, tokens=tokens)
        self.stop = job_stops.quarantined(intent.key, collected.problem)

    def _give_up(self, intent: Intent, status: str, note: str, *, tokens: int | None) -> None:
        """Close a job that brought nothing; its rows are open again, and were not tried."""
        outcome = JobOutcome(
            status=status,
            tokens=tokens,
            ended=self._p.clock().isoformat(),
            counted=False,
            again={} if status == UNNEEDED else intent.rows(),
            note=note,
        )
        self._close(intent, outcome)

    def _finish(self, intent: Intent, state: JobState, collected: Collected) -> None:
        kinds: Counter[str] = Counter()
        # Of a job that we ended ourselves the rows are not to blame.
        counted = not self._desk.is_cancelled(intent.key)
        verdicts = self._verdicts(collected.failed, kinds, counted=counted)
        for key, rows, vectors in collected.segments():
            kinds["succeeded"] += len(rows)
            self._segments.keep(intent.key, key, rows, vectors)
        tokens = state.tokens if state.tokens is not None else collected.tokens or None
        outcome = replace(
            verdicts,
            status=state.status,
            buckets=buckets_of(kinds),
            tokens=tokens,
            ended=self._p.clock().isoformat(),
            counted=counted,
        )
        self._close(intent, outcome)
        unpaid = [row.failure for row in collected.failed if row.failure.code == NO_CREDIT]
        if unpaid:
            self.stop = job_stops.unpaid(intent.key, unpaid)

    def _verdicts(
        self, failed: Sequence[FailedRow], kinds: Counter[str], *, counted: bool
    ) -> JobOutcome:
        """What becomes of the rows without a vector, as the rows' part of an outcome."""
        dead: list[tuple[int, int, int, str, str]] = []
        again: dict[SegmentKey, list[int]] = {}
        alone: dict[SegmentKey, list[int]] = {}
        untried: dict[SegmentKey, list[int]] = {}
        for item in failed:
            tries = self._history.tries_of(item.key, item.row) + 1 if counted else 0
            verdict = verdict_on_row(
                item.failure, tries, shared_request=item.shared, policy=self._p.policy
            )
            kinds[_bucket(item, verdict)] += 1
            if verdict == "dead":
                code, message = item.failure.code, item.failure.message
                dead.append((item.key.shard, item.key.number, item.row, code, message))
                continue
            again.setdefault(item.key, []).append(item.row)
            if item.failure.code == NO_CREDIT:
                untried.setdefault(item.key, []).append(item.row)
            if verdict == "again-alone":
                alone.setdefault(item.key, []).append(item.row)
        return JobOutcome(status="", again=again, untried=untried, alone=alone, dead=tuple(dead))

    def _close(self, intent: Intent, outcome: JobOutcome) -> None:
        self._write(intent, outcome)
        self._desk.close(intent.key)

    def _write(self, intent: Intent, outcome: JobOutcome) -> None:
        self._p.records.collected(intent.key, outcome)
        self._segments.land(intent.rows(), outcome)


def _bucket(item: FailedRow, verdict: str) -> str:
    if item.missing:
        return "missing"
    if verdict == "dead":
        return "permanent"
    return "expired" if item.failure.kind == "expired" else "retryable"
