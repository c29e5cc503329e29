"""Compact: fold an index's segments, so that opening it stays fast."""

from __future__ import annotations

import logging

from embedmill.compacting import Compaction
from embedmill.errors import IndexLockedError, RefusedError
from embedmill.executor import Executor
from embedmill.plain_numbers import agreed, number_of
from embedmill.settings import Settings
from pipelines.open_version import open_version
from pipelines.run_options import RunOptions

log = logging.getLogger(__name__)


def compact(settings: Settings, executor: Executor, options: RunOptions) -> Compaction:
    """Fold the segments of every shard that has more than it needs.

    Nothing is embedded or written to the store. Killed at any point, it can be run again, and until
    then the index is as it was.

    Args:
        settings: of the index.
        executor: runs the workers; closed by the caller.
        options: of this run.

    Raises:
        RefusedError: an earlier run left work between the layers.
    """
    with open_version(settings, "compact", options) as version:
        execution = version.execution(executor)
        with version.reported(execution):
            left = execution.prepare(fill=False, copied=True)
            if left:
                raise RefusedError(
                    f"{number_of(left, 'segment')} {agreed(left, 'is', 'are')} not in the store "
                    "yet; what is not there cannot be folded",
                    hint="run embedmill ingest SETTINGS to its end first",
                )
            done = execution.compact(spare=0)
        try:
            execution.tidy()
        except IndexLockedError as error:
            # A reader has the store; the next run does it.
            log.warning("the store was left as it is: %s", error)
        return done
