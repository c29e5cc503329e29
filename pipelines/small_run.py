"""How much one process does alone before a run is worth the start of workers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from embedmill.run_report import Pipeline
from pipelines.scan import Scan

# One process finds some 50 MB of small documents unchanged in a second: this takes no longer than
# starting Ray and its workers.
_READ_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Beginning:
    """What was begun, when, and with what; it stays when the run moves to another executor.

    Attributes:
        pipeline: that is run.
        at: UTC, ISO 8601.
        clock: monotonic seconds.
        segments: by shard, the number of the first segment that the run may commit.
    """

    pipeline: Pipeline
    at: str
    clock: float
    segments: Mapping[int, int] = field(default_factory=dict)


class OutgrownError(Exception):
    """A run is more than one process should do alone; what was committed is kept."""


@dataclass(frozen=True, slots=True)
class SmallRun:
    """The limit of a run that is done inline because it is small.

    Nothing is embedded and nothing goes to the store before the whole source has been read within
    the limit: at that moment it is known how much there is to do, and it is little. Where the limit
    is met before, only the part of the source up to there is read twice.

    Attributes:
        chunks: of new and changed documents, and of segments that an earlier run has left.
        read_bytes: of the source.
    """

    chunks: int
    read_bytes: int = _READ_BYTES

    def checked(self, scan: Scan, left_over: int) -> SmallRun | None:
        """Look whether the run is still small; returns None when that is settled.

        Args:
            scan: of its source.
            left_over: chunks of segments that were there before.

        Raises:
            OutgrownError: it is not; says why.
        """
        new = scan.size.chunks + left_over
        if new > self.chunks:
            raise OutgrownError(f"more than {self.chunks:,} new chunks")
        if scan.size.read_bytes > self.read_bytes:
            raise OutgrownError(f"a source of more than {self.read_bytes // 2**20:,} MiB")
        return None if scan.finished else self
