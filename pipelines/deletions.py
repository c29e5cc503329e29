"""When a sync may delete what its scan has not met."""

from __future__ import annotations

import logging

from embedmill.errors import DeletionsWithheldError
from embedmill.settings import Settings

log = logging.getLogger(__name__)


def may_delete(settings: Settings, unseen: int, unidentified: int) -> bool:
    """Whether the scan says for sure that documents are gone.

    Args:
        settings: of the index.
        unseen: documents of the index that the scan has not met.
        unidentified: rows of the scan whose ids could not be read; they may be any document.
    """
    if settings.sync == "append":
        return False
    if unidentified:
        log.warning(
            "%d documents were not met, and the ids of %d rows could not be read: nothing is "
            "deleted until they can",
            unseen,
            unidentified,
        )
    return not unidentified


def refusal_to_delete(
    settings: Settings, unseen: int, documents: int
) -> DeletionsWithheldError | None:
    """The refusal to delete so many of the documents; None when it is within the limit."""
    share = settings.max_delete_fraction
    if unseen <= share * documents:
        return None
    return DeletionsWithheldError(
        f"{unseen} of {documents} documents are gone from the source, more than "
        f"max_delete_fraction ({share:g}) allows; none was deleted, what is new or changed was "
        "taken in",
        hint="if that is right, run again with --allow-deletes; if the source only holds new "
        "documents, set sync: append",
    )
