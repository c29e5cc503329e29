"""Embedding jobs: what to do next. Decisions without input or output; time is an argument.

A job's life, as its files in the workspace tell it::

    intended --submit--> submitted --poll--> terminal --collect--> collected
       |  ^                                                    (outcome.json)
       |  '-- nothing found for a minute: submit
       '----- the reply was lost, or another process: look first

An intent is written before anything is sent, so that a job which was paid for is always found
again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Literal

from embedmill.batch_provider import NO_CREDIT, JobHandle, JobState, RowFailure

Step = Literal["submit", "look", "poll", "collect", "overdue", "wait"]


@dataclass(frozen=True, slots=True)
class JobPolicy:
    """How patient the state machine is. All in seconds.

    Attributes:
        poll_first: before the first question about a job.
        poll_most: between two questions; the gap doubles up to it.
        jitter: share of a gap by which it varies, so that many clients do not ask in step.
        listing_lag: how long a created job may be missing from the provider's listing.
        queue_full_wait: before submitting again when too many tokens are waiting; nothing ran.
        window: of a provider that states none.
        grace: beyond the provider's window before a job is called overdue.
        give_up_after: a job that is tried in vain, to be sent or to be read, for so long ends the
            run once nothing else goes on. Outages of providers are shorter.
        row_tries: jobs that a row may be in before it dies.
    """

    poll_first: float = 15.0
    poll_most: float = 600.0
    jitter: float = 0.2
    listing_lag: float = 60.0
    queue_full_wait: float = 300.0
    window: float = 172_800.0
    grace: float = 3600.0
    give_up_after: float = 14_400.0
    row_tries: int = 5

    def window_of(self, stated_s: int | None) -> float:
        """Seconds within which a provider finishes a job."""
        return self.window if stated_s is None else stated_s

    def longer(self, tries: int) -> float:
        """Seconds to wait after so many others: half as long again each time, up to a bound."""
        return min(self.poll_most, self.poll_first * 1.5 ** min(tries, 40))


@dataclass(frozen=True, slots=True)
class JobProgress:
    """One job as its runner knows it.

    Attributes:
        key: of the job.
        intended: when the intent was written, UTC.
        sure: this process wrote the intent and nothing has been sent for it yet.
        last_try: when the last try to submit it ended, ours or that of a dead process; None: never.
        refusals: tries to submit it that the provider or the way to it did not let through.
        looked: when it was last looked for in vain; None: never since that try.
        handle: of the submitted job; None before.
        state: as of the last poll; None before the first.
        polls: questions about its state, answered or not.
        not_before: do nothing earlier.
    """

    key: str
    intended: datetime
    sure: bool
    last_try: datetime | None = None
    refusals: int = 0
    looked: datetime | None = None
    handle: JobHandle | None = None
    state: JobState | None = None
    polls: int = 0
    not_before: datetime | None = None


def next_step(job: JobProgress, now: datetime, window_s: int | None, policy: JobPolicy) -> Step:
    """What to do about a job now.

    Args:
        job: as it stands.
        now: UTC.
        window_s: within which the provider finishes jobs; None: not known.
        policy: how patient to be.
    """
    if job.state is not None and job.state.terminal:
        return "collect"
    if job.not_before is not None and now < job.not_before:
        return "wait"
    if job.handle is None:
        if job.sure:
            return "submit"
        return "submit" if _believably_absent(job, policy) else "look"
    # A job may have ended while nobody asked: only one that still runs is overdue.
    asked = job.state is not None or job.polls >= 5
    limit = timedelta(seconds=policy.window_of(window_s) + policy.grace)
    late = now - job.handle.created_at > limit
    return "overdue" if asked and late else "poll"


def _believably_absent(job: JobProgress, policy: JobPolicy) -> bool:
    """Unknown is not absent: a job may be listed late, so that only a late look can tell."""
    if job.looked is None:
        return False
    tried = job.last_try or job.intended
    return job.looked - tried >= timedelta(seconds=policy.listing_lag)


def after_submit(
    job: JobProgress, handle: JobHandle, now: datetime, policy: JobPolicy
) -> JobProgress:
    """The job exists, by creation or because it was found."""
    first = now + timedelta(seconds=policy.poll_first)
    return replace(job, handle=handle, sure=False, not_before=first)


def after_unknown(job: JobProgress, now: datetime) -> JobProgress:
    """Whether the job was created is not known: look before anything else, and soon.

    Args:
        job: as it stands.
        now: after the try has ended; nothing of it is on its way any more.
    """
    return replace(job, sure=False, last_try=now, looked=None, not_before=None)


def after_not_found(job: JobProgress, looked: datetime, policy: JobPolicy) -> JobProgress:
    """It is not listed (yet); look again until the listing can be believed.

    Args:
        job: as it stands.
        looked: when the listing was asked for.
        policy: how long to doubt it.
    """
    job = replace(job, looked=looked)
    again = looked + timedelta(seconds=policy.listing_lag / 4)
    return replace(job, not_before=None if _believably_absent(job, policy) else again)


def after_refused_for_now(
    job: JobProgress, now: datetime, wait_s: float | None, policy: JobPolicy
) -> JobProgress:
    """No job was created, and we wait before we try again.

    Args:
        job: as it stands.
        now: UTC.
        wait_s: as the provider wants it, at least; None: it does not say. A whole file may have
            been sent in vain, so that the pause grows with every try, whatever it says.
        policy: how patient to be.
    """
    later = now + timedelta(seconds=max(wait_s or 0.0, policy.longer(job.refusals)))
    tried = replace(job, refusals=job.refusals + 1)
    return replace(tried, sure=True, last_try=now, looked=None, not_before=later)


def after_pause(job: JobProgress, now: datetime, wait_s: float) -> JobProgress:
    """A question could not be answered now; nothing else has changed."""
    return replace(job, not_before=now + timedelta(seconds=wait_s))


def after_poll(
    job: JobProgress, state: JobState | None, now: datetime, policy: JobPolicy, dice: random.Random
) -> JobProgress:
    """A question was answered; None: it failed, which says nothing about the job."""
    gap = policy.longer(job.polls)
    gap *= 1 + policy.jitter * (2 * dice.random() - 1)
    known = job.state if state is None else state
    return replace(job, state=known, polls=job.polls + 1, not_before=now + timedelta(seconds=gap))


RowVerdict = Literal["dead", "again", "again-alone"]


def verdict_on_row(
    failure: RowFailure, tries: int, *, shared_request: bool, policy: JobPolicy
) -> RowVerdict:
    """What becomes of a row without a vector.

    Args:
        failure: as collected; missing rows are ``retryable``.
        tries: jobs that it has been in, this one included.
        shared_request: the request failed as a whole and held other rows too: one of them may be
            to blame, so each gets a request of its own.
        policy: how many tries there are.
    """
    if failure.code == NO_CREDIT:
        # Not the row's fault, and not a try: a person is told.
        return "again"
    if failure.kind == "permanent":
        return "again-alone" if shared_request else "dead"
    return "again" if tries < policy.row_tries else "dead"


@dataclass(frozen=True, slots=True)
class Buckets:
    """Rows of a collected job; they add up to what was submitted.

    Attributes:
        succeeded: have vectors.
        retryable: not their own fault; sent again.
        permanent: dead.
        expired: the window closed first; sent again.
        missing: without any outcome; sent again.
    """

    succeeded: int = 0
    retryable: int = 0
    permanent: int = 0
    expired: int = 0
    missing: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.succeeded + self.retryable + self.permanent + self.expired + self.missing


def buckets_of(kinds: Mapping[str, int]) -> Buckets:
    """Buckets from counts by kind."""
    return Buckets(**{name: kinds.get(name, 0) for name in Buckets.__slots__})
