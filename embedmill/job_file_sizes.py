"""How large a file of requests may be, as far as the provider has shown by what it refused.

A file that is refused for its size is sent again in halves. Where that ends at a text that is
refused alone, either the text is to blame or nothing passes at all: a limit of the account, of a
proxy, of the settings. The shortest text that is left tells: if a file with that alone is taken,
the others were to blame; if it is refused as well, and another one in the same words, no text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from embedmill.job_records import TOO_LARGE, Intent, JobOutcome
from embedmill.job_rows import Rows
from embedmill.segment import SegmentKey

# Texts refused alone, one after the other: one that may be bad, and the two shortest of all others.
_HOPELESS = 3
# As many where files passed since these were refused among others, or where each was refused in
# other words: a few bad texts stop no corpus.
_MANY = 16
# Names, sizes and ids differ from one refusal to the next.
_NUMBERED = re.compile(r"[\w.-]*\d[\w.-]*")


@dataclass(frozen=True, slots=True)
class Suspect:
    """A job of one text that was refused for its size, and is not closed yet.

    Attributes:
        intent: of the job.
        said: by the provider.
    """

    intent: Intent
    said: str

    @property
    def words(self) -> str:
        """What was said, without what differs from one file to the next."""
        return _NUMBERED.sub("#", self.said)


@dataclass(slots=True, eq=False)
class _Refusal:
    """A file of several texts that was refused.

    Attributes:
        when: ISO 8601, as outcomes have it.
        rows: of the file.
        before: an earlier process was told so.
        explained: one of these texts is refused alone.
    """

    when: str
    rows: Rows
    before: bool = False
    explained: bool = False

    @property
    def count(self) -> int:
        """Texts of the file."""
        return sum(map(len, self.rows.values()))

    def holds(self, texts: Iterable[tuple[SegmentKey, int]]) -> bool:
        """Whether it held one of these texts."""
        return any(row in self.rows.get(key, ()) for key, row in texts)


class FileSizes:
    """What was refused for its size, and what that says of the files to come.

    Attributes:
        probe: key of the job whose fate is awaited before another is sent; "": there is none.
    """

    def __init__(self) -> None:
        self.probe = ""
        self._refused: list[_Refusal] = []
        # Until then nothing passed at all, which says nothing of sizes.
        self._void_until = ""
        # Refused alone: of a file with one of these nothing can be learned.
        self._alone: set[tuple[SegmentKey, int]] = set()
        self._suspects: list[Suspect] = []
        # Whether the last thing that was learned was a refusal.
        self._unsure = False

    def remember(self, outcome: JobOutcome) -> None:
        """Learn from a job that an earlier process closed."""
        if outcome.status != TOO_LARGE:
            return
        self._alone.update((SegmentKey(shard, n), row) for shard, n, row, _, _ in outcome.dead)
        if outcome.too_large > 1:
            self._refused.append(_Refusal(outcome.ended, outcome.again, before=True))
        elif outcome.too_large:
            self._void_until = max(self._void_until, outcome.ended)

    def refuse(self, intent: Intent, said: str, now: datetime, *, doubtful: bool) -> None:
        """Learn from a job that was refused now.

        Args:
            intent: of the job.
            said: by the provider.
            now: UTC.
            doubtful: it is of a single text, which may not be to blame.
        """
        rows = intent.rows()
        self._unsure = True
        if intent.key == self.probe:
            self.probe = ""
        if intent.inputs > 1:
            self._refused.append(_Refusal(now.isoformat(), rows))
        else:
            self._alone.update((key, row) for key, some in rows.items() for row in some)
        if doubtful:
            self._suspects.append(Suspect(intent, said))

    @property
    def most(self) -> int | None:
        """Texts of the next file at most; None: nothing is known."""
        if self._suspects:
            return 1
        for it in self._valid():
            it.explained = it.explained or it.holds(self._alone)
        counts = [it.count for it in self._valid() if not it.explained]
        return max(1, min(counts) // 2) if counts else None

    def _valid(self) -> list[_Refusal]:
        """Refusals that say something; clocks of earlier processes may have been others."""
        return [it for it in self._refused if not it.before or it.when > self._void_until]

    @property
    def doubtful(self) -> int:
        """Texts that were refused alone, of which it is not known whose fault that is."""
        return len(self._suspects)

    @property
    def one_by_one(self) -> bool:
        """Whether the next file is to tell more before another is sent."""
        return bool(self._suspects) or (self._unsure and self.most == 1)

    def is_hopeless(self, passed: Iterable[Intent]) -> bool:
        """Whether no file can pass, however small.

        Args:
            passed: jobs that the provider has created and not refused.
        """
        if len(self._suspects) >= _MANY:
            return True
        last = self._suspects[-_HOPELESS:]
        alike = len(last) == _HOPELESS and len({suspect.words for suspect in last}) == 1
        return alike and not self._others_pass(passed)

    def _others_pass(self, passed: Iterable[Intent]) -> bool:
        """Whether a file was not refused that was made after one with a suspect was."""
        suspects = [it for suspect in self._suspects for it in suspect.intent.rows().items()]
        alone = {(key, some[0]) for key, some in suspects}
        first = min((it.when for it in self._valid() if it.holds(alone)), default=None)
        return first is not None and any(it.created.isoformat() >= first for it in passed)

    def judged(self) -> Sequence[Suspect]:
        """The suspects, who are suspects no longer."""
        suspects, self._suspects = tuple(self._suspects), []
        self.probe, self._unsure = "", False
        return suspects
