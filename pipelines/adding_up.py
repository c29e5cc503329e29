"""Whether a run may end well: its counts add up, and not everything died."""

from __future__ import annotations

from embedmill.dead_letter import read_letters
from embedmill.errors import CountsMismatchError, StopRunError
from embedmill.plain_numbers import agreed
from embedmill.run_report import RunReport
from embedmill.workspace import Workspace

# So many rows do not all die by themselves: the model, the store or the settings are to blame.
_FEW = 10


def require_sums(workspace: Workspace, report: RunReport) -> None:
    """See that a run that has done all its work may count as succeeded.

    Args:
        workspace: has the run's dead letters.
        report: of the run, with the records that the store counts.

    Raises:
        CountsMismatchError: the counts do not add up.
        StopRunError: all documents, or all chunks, died; says what the first of them died of.
    """
    problems = report.problems()
    if problems:
        raise CountsMismatchError(
            "the counts of this run do not add up: " + "; ".join(problems),
            hint="see what differs with: embedmill audit -c SETTINGS; put it right with: embedmill "
            "audit --repair -c SETTINGS (nothing is embedded for it)",
        )
    documents, chunks = report.documents, report.chunks
    # A few rows that die while others live are to blame themselves.
    few = _FEW if report.live_records > 0 else 1
    for what, dead, total in (
        ("document", documents.dead, documents.read),
        ("chunk", chunks.dead, chunks.chunks),
    ):
        if total >= few and dead == total:
            all_of_them = agreed(total, f"the only {what}", f"all {total:,} {what}s")
            raise StopRunError(
                f"{all_of_them} of this run died{_first_cause(workspace, report)}",
                code="all-dead",
                hint="see all causes with: embedmill dlq list -c SETTINGS",
            )


def _first_cause(workspace: Workspace, report: RunReport) -> str:
    letter = next(read_letters(workspace, report.index, report.run), None)
    if letter is None:
        return ""
    return f"; one of them, {letter.uri or letter.doc_id}: {letter.message}"
