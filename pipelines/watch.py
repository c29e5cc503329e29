"""Watching a publication: a command that fails often enough takes readers back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from embedmill.assembly import workspace_of
from embedmill.errors import (
    EmbedmillError,
    IndexLockedError,
    OutcomeUnknownError,
    StopRunError,
    TransientError,
)
from embedmill.manifest import IndexVersion, Manifest
from embedmill.publishing import version_before
from embedmill.settings import Settings
from embedmill.user_commands import command_problem
from pipelines.publish import Publication, rollback, tell

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WatchPlan:
    """How a publication is watched.

    Attributes:
        command: for the shell; any status but 0 is a failure.
        for_s: seconds to watch.
        every_s: seconds between the starts of two checks; a check that takes longer has failed.
        failures: so many in a row take readers back: one may be an accident.
    """

    command: str
    for_s: float
    every_s: float = 30.0
    failures: int = 3


@dataclass(frozen=True, slots=True)
class Watched:
    """What became of it.

    Attributes:
        checks: so many were made.
        failed: of these.
        back: the rollback, or None.
        ended: ``time`` is up, ``rolled-back``, ``interrupted``, or ``overtaken`` by somebody who
            published or rolled back meanwhile.
    """

    checks: int
    failed: int
    back: Publication | None
    ended: str


def run_check(command: str, environment: Mapping[str, str], timeout_s: float) -> str:
    """Run a check; what went wrong, or nothing."""
    return command_problem(command, timeout_s=timeout_s, variables=environment)


def watch_and_tell(
    settings: Settings,
    done: Publication,
    plan: WatchPlan,
    *,
    stop: threading.Event | None = None,
    sleep: Callable[[float], None] = time.sleep,
    check: Callable[[str, Mapping[str, str], float], str] = run_check,
) -> tuple[Publication, Watched]:
    """Watch a publication from its first moment, and tell others of it beside that.

    A hook that does not answer is tried for minutes; readers see the version meanwhile. Whoever
    hears of a rollback hears of it last.

    Args:
        settings: of the index.
        done: the publication, which nobody was told of.
        plan: how it is watched.
        stop: when set, the watch ends and the version stays.
        sleep: waits for so many seconds.
        check: as :func:`watch` takes it.

    Returns:
        Both, with what became of telling.
    """
    with ThreadPoolExecutor(1) as beside:
        telling = beside.submit(tell, settings, sleep=sleep)
        watched = watch(settings, done.switch.after, plan, stop=stop, sleep=sleep, check=check)
        done = replace(done, told=telling.result())
    if watched.back is not None:
        back = replace(watched.back, told=tell(settings, sleep=sleep))
        watched = replace(watched, back=back)
    return done, watched


def watch(
    settings: Settings,
    published: IndexVersion,
    plan: WatchPlan,
    *,
    stop: threading.Event | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
    check: Callable[[str, Mapping[str, str], float], str] = run_check,
) -> Watched:
    """Check until the time is up; take readers back when it fails too often in a row.

    No lease is held: syncs go on, and anybody may publish or roll back. Nobody is told.

    Args:
        settings: of the index.
        published: that is watched.
        plan: how.
        stop: when set, the watch ends and the version stays.
        clock: monotonic seconds.
        sleep: waits for so many seconds.
        check: runs the command with these variables; returns what went wrong, or nothing.

    Raises:
        StopRunError: readers should have been taken back, and could not be until the time was up.
        RefusedError: there is no version to take them back to.
    """
    manifest = Manifest(workspace_of(settings), settings.index)
    variables = {
        "EMBEDMILL_INDEX": settings.index,
        "EMBEDMILL_VERSION": str(published.number),
        "EMBEDMILL_COLLECTION": published.collection,
    }
    deadline, checks, failed, in_a_row = clock() + plan.for_s, 0, 0, 0
    while True:
        if stop is not None and stop.is_set():
            return Watched(checks, failed, None, "interrupted")
        if _is_overtaken(manifest, published):
            return Watched(checks, failed, None, "overtaken")
        began = clock()
        problem = check(plan.command, variables, plan.every_s)
        checks += 1
        failed, in_a_row = (failed + 1, in_a_row + 1) if problem else (failed, 0)
        if problem:
            log.warning("check %d of %s failed: %s", checks, published.name, problem)
        due = in_a_row >= plan.failures
        back = _taken_back(settings, manifest, published) if due else None
        if isinstance(back, Publication):
            return Watched(checks, failed, back, "rolled-back")
        rest = max(0.0, plan.every_s - (clock() - began))
        if clock() + rest > deadline:
            if back is not None:
                raise _left_there(published, in_a_row, back) from back
            return Watched(checks, failed, None, "time")
        sleep(rest)


def _is_overtaken(manifest: Manifest, published: IndexVersion) -> bool:
    """Whether readers were sent elsewhere; a manifest that does not answer says nothing."""
    try:
        now = manifest.read().published
    except TransientError as error:
        log.warning("the manifest could not be read, the watch goes on: %s", error)
        return False
    return now is None or now.number != published.number


def _taken_back(
    settings: Settings, manifest: Manifest, published: IndexVersion
) -> Publication | EmbedmillError:
    """The rollback; or what hinders it for now, a sync that holds the store for instance."""
    try:
        back = version_before(manifest.read(), published)
        return rollback(settings, number=back.number, tells=False)
    except (TransientError, OutcomeUnknownError, IndexLockedError) as error:
        log.warning("readers could not be taken back, tried again after the next check: %s", error)
        return error


def _left_there(published: IndexVersion, checks: int, hindered: EmbedmillError) -> StopRunError:
    return StopRunError(
        f"the last {checks:,} checks of {published.name} failed, and readers could not be taken "
        f"back within the time of the watch: {hindered}",
        code="not-taken-back",
        hint="readers still see it; take them back with: embedmill rollback -c SETTINGS",
    )
