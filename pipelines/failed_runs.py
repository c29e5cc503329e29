"""What a run that does not end well leaves: a report, for without one it would pass for killed."""

from __future__ import annotations

import logging

from embedmill.errors import EmbedmillError
from embedmill.run_report import RunReport, RunStatus, write_report
from embedmill.workspace import Workspace
from pipelines.run_options import InterruptedRunError

log = logging.getLogger(__name__)


def status_by(error: BaseException) -> RunStatus:
    """How a run ended that this ended: a person stopped it, or it failed, by a bug as well."""
    interrupted = isinstance(error, InterruptedRunError | KeyboardInterrupt)
    return "interrupted" if interrupted else "failed"


def leave_report(workspace: Workspace, report: RunReport) -> None:
    """Write the report if that can be done.

    The run's own error matters more than that of a workspace which is full or out of reach.
    """
    try:
        write_report(workspace, report)
    except EmbedmillError as problem:
        log.warning("no report was written: %s", problem)
