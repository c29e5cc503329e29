"""Why embedding jobs end a run: what a person has to look at before anything more is sent."""

from __future__ import annotations

from collections.abc import Sequence

from embedmill.batch_provider import NO_CREDIT, RowFailure
from embedmill.errors import StopRunError
from embedmill.plain_numbers import number_of

_MEND = "mend the cause and run the same command again; nothing was charged for it"
_PAY = "add credit or raise the limit, then run the same command again: what was paid for is kept"


def refused(key: str, said: str) -> StopRunError:
    """The provider did not create a job, and would refuse it again."""
    return StopRunError(
        f"the provider refused embedding job {key}: {said}", code="job-refused", hint=_MEND
    )


def failed(key: str, said: str, *, unpaid: bool) -> StopRunError:
    """The provider ended a job before it ran.

    Args:
        key: of the job.
        said: by the provider.
        unpaid: for want of money.
    """
    message = f"the provider refused embedding job {key} as a whole: {said}"
    if unpaid:
        return StopRunError(message, code=NO_CREDIT, hint=_PAY)
    return StopRunError(message, code="job-refused", hint=_MEND)


def unpaid(key: str, failures: Sequence[RowFailure]) -> StopRunError:
    """Rows of a job were not executed for want of money."""
    return StopRunError(
        f"embedding job {key} did not execute {number_of(len(failures), 'row')}: "
        f"{failures[0].message}",
        code=NO_CREDIT,
        hint=_PAY,
    )


def nothing_passes(count: int, said: str) -> StopRunError:
    """Files of one text are refused for their size, one after the other: no text is to blame.

    Args:
        count: of these files.
        said: by the provider, of the last.
    """
    return StopRunError(
        f"the provider refuses files of a single text as too large, {count} in a row: {said}",
        code="embedder-settings",
        hint="no text is to blame, and none of these became a dead letter: look for a limit of the "
        "account, the model or a proxy at embedder.base_url; each file also holds the known texts "
        "(embedder.jobs.canaries: 0 for none). Then run the same command again; with "
        "embedder.mode: realtime it goes on without jobs",
    )


def quarantined(key: str, problem: str) -> StopRunError:
    """The results of a job are not what was asked for."""
    return StopRunError(
        f"the results of embedding job {key} are not what was asked for, none of them was used: "
        f"{problem}",
        code="quarantined",
        hint="ask the provider about the job; the same command sends its rows again",
    )


def gone(key: str, said: str) -> StopRunError:
    """The results of a job cannot be had any more."""
    return StopRunError(
        f"the results of embedding job {key} cannot be had: {said}",
        code="results-gone",
        hint="ask the provider about the job; the same command sends its rows again, and they "
        "are paid for again",
    )


def unreadable(key: str, said: str) -> StopRunError:
    """The results of a job are refused, which does not say that they are gone."""
    return StopRunError(
        f"the results of embedding job {key} cannot be read: {said}",
        code="results-refused",
        hint="they are not given up: run the same command again when the cause is mended. Where it "
        f"cannot be, embedmill jobs cancel {key} --give-up -c SETTINGS lets them be: the job's "
        "rows are sent, and paid for, again",
    )


def unknown(key: str, said: str, *, elsewhere: bool) -> StopRunError:
    """The provider does not know a job that was submitted.

    Args:
        key: of the job.
        said: by the provider.
        elsewhere: it was submitted with another key, or to another address, than is asked.
    """
    whose = (
        "it was submitted with another API key or to another base_url than the settings have now: "
        "set embedder.api_key and embedder.base_url as they were"
        if elsewhere
        else "does embedder.api_key belong to the project that submitted the job?"
    )
    return StopRunError(
        f"embedding job {key}: {said}",
        code="job-unknown",
        hint=f"{whose}. Where nobody can reach it any more, embedmill jobs cancel {key} --give-up "
        "-c SETTINGS lets it be: its rows are sent, and paid for, again",
    )


def overdue(key: str, job_id: str, status: str) -> StopRunError:
    """A job does not end.

    Args:
        key: of the job.
        job_id: the provider's own.
        status: its last, in the provider's words.
    """
    return StopRunError(
        f"embedding job {key} ({job_id}) should have ended long ago; its last status: {status}",
        code="overdue",
        hint=f"ask the provider, or give it up with: embedmill jobs cancel {key} -c SETTINGS",
    )


def not_sent(key: str, tries: str, said: str) -> StopRunError:
    """A job cannot be sent, for whatever the provider said each time.

    Args:
        key: of the job.
        tries: how many there were, and for how long.
        said: by the provider, of the last.
    """
    return StopRunError(
        f"embedding job {key} could not be sent, {tries}: {said}",
        code="job-not-sent",
        hint="ask the provider, then run the same command again: it looks for the job before it "
        f"sends it. Or give it up with: embedmill jobs cancel {key} -c SETTINGS; "
        "embedder.mode: realtime goes on without jobs",
    )


def queue_full(said: str) -> StopRunError:
    """The provider takes no job although none of ours is under way.

    Args:
        said: by the provider, of the last job.
    """
    return StopRunError(
        f"the provider's queue is full for longer than a job takes, and not with ours: {said}",
        code="queue-full",
        hint="see what else uses the account, and whether one file is more than its limit: "
        "embedder.jobs.inputs_per_file makes files smaller. Then run the same command again",
    )
