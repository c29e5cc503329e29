"""When a sync may delete what its scan has not met."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from actors.shard_worker import ShardTotals
from embedmill.errors import DeletionsWithheldError
from embedmill.plain_numbers import agreed, number_of
from embedmill.settings import Settings

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deletions:
    """What becomes of the documents that a scan has not met.

    Attributes:
        decided: they are deleted.
        withheld: how many are kept though they should go.
        refusal: they are too many to be deleted.
    """

    decided: bool = False
    withheld: int = 0
    refusal: DeletionsWithheldError | None = None


def decided_deletions(
    settings: Settings, totals: Sequence[ShardTotals], *, unidentified: int, allowed: bool
) -> Deletions:
    """Whether what was not met is deleted.

    Args:
        settings: of the index.
        totals: of all shards.
        unidentified: rows of the scan whose ids could not be read; they may be any document.
        allowed: a person has said that any number may be deleted.
    """
    unseen = sum(total.unseen for total in totals)
    documents = sum(total.documents for total in totals)
    if not unseen or settings.sync == "append":
        return Deletions()
    if unidentified:
        log.warning(
            "%s not met, and no id could be read of %s: nothing is deleted until it can",
            f"{number_of(unseen, 'document')} {agreed(unseen, 'was', 'were')}",
            number_of(unidentified, "row"),
        )
        return Deletions(withheld=unseen)
    refusal = None if allowed else _refusal_to_delete(settings, unseen, documents)
    return Deletions(refusal is None, unseen if refusal else 0, refusal)


def _refusal_to_delete(
    settings: Settings, unseen: int, documents: int
) -> DeletionsWithheldError | None:
    """The refusal to delete so many of the documents; None when it is within the limit."""
    share = settings.max_delete_fraction
    if unseen <= share * documents:
        return None
    return DeletionsWithheldError(
        f"{unseen:,} of {number_of(documents, 'document')} {agreed(unseen, 'is', 'are')} gone from "
        f"the source, more than max_delete_fraction ({share:g}) allows; none was deleted, what is "
        "new or changed was taken in",
        hint="if that is right, run again with --allow-deletes; if the source only holds new "
        "documents, set sync: append",
    )
