"""Before a source is read: which of its files need not be, since they are listed as they were.

Where a listing has tags, the workers that own the ledgers are asked first, thousands of documents
at a time. What they know they note as met and count; the rest is read. What has to be read stays so
in every pass of a scan, in the same splits, so that the blocks of these keep their names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import compress

import numpy as np
import numpy.typing as npt

from actors.shard_worker import Listed, Recognised
from embedmill.counts import DocumentCounts
from embedmill.errors import TransientError
from embedmill.executor import Done
from embedmill.run_context import RunContext
from embedmill.sharding import ShardPlan, doc_key
from embedmill.source import TAG_BYTES, Split
from embedmill.sources.listing import doc_id_of
from pipelines.dispatcher import Dispatcher
from pipelines.run_options import RunOptions

# Documents asked about at once: of a million, the driver holds the keys of two such questions.
_AT_ONCE = 10_000
# The next question is put together while the workers answer.
_AHEAD = 2


@dataclass(slots=True)
class _Question:
    splits: Sequence[Split]
    # Answers that have not come yet.
    waiting: int = 0
    # Positions among the documents of all these splits.
    to_read: list[npt.NDArray[np.intp]] = field(default_factory=list)


class Recognition:
    """Asks about all that is listed with tags, in every pass of a scan.

    Attributes:
        splits: to be read; complete when ``finished``.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        pool: str,
        plan: ShardPlan,
        splits: Sequence[Split],
        *,
        on_recognised: Callable[[int, DocumentCounts], None],
        on_lost: Callable[[int, TransientError], None],
    ) -> None:
        """Ask nothing before :meth:`start`.

        Args:
            dispatcher: submits calls.
            pool: of the workers that own the shards.
            plan: of the shards.
            splits: of the source, in order.
            on_recognised: told by worker of documents that need not be read.
            on_lost: told of a worker that did not answer.
        """
        self._dispatcher = dispatcher
        self._pool = pool
        self._plan = plan
        self._on_recognised = on_recognised
        self._on_lost = on_lost
        # All but those that are to be read.
        self._listed = [split for split in splits if split.tags]
        self.splits = [split for split in splits if not split.tags]
        self._free = 1 + max((split.number for split in splits), default=-1)
        self._open: deque[_Question] = deque()

    def start(self, workers: Collection[int]) -> None:
        """Begin a pass: ask these workers."""
        self._asked = set(workers)
        self._groups = _groups(self._listed)
        self._listed = []
        self._found: list[tuple[Sequence[str], int]] = []
        self.finished = False

    def pump(self) -> bool:
        """Ask what there is room for; whether all is answered by now."""
        while not self.finished:
            while len(self._open) < _AHEAD and (group := next(self._groups, None)):
                self._ask(_Question(group))
            if not self._open:
                more = list(cut(self._found, self._free))
                self.splits += more
                self._free += len(more)
                self.finished = True
            elif self._open[0].waiting:
                break
            else:
                self._close(self._open.popleft())
        return self.finished

    def _ask(self, question: _Question) -> None:
        self._open.append(question)
        ids = [doc_id_of(path) for split in question.splits for path in split.paths]
        keys = list(map(doc_key, ids))
        shards = np.fromiter(map(self._plan.shard_of, ids), np.int32, len(ids))
        joined = b"".join(split.tags for split in question.splits)
        tags = np.frombuffer(joined, f"V{TAG_BYTES}")
        owners = shards % self._dispatcher.size(self._pool)
        for worker in sorted(self._asked):
            at = np.flatnonzero(owners == worker)
            if not len(at):
                continue
            mine = b"".join(keys[each] for each in at.tolist())
            listed = Listed(shards[at], mine, tags[at].tobytes())
            question.waiting += 1
            then = partial(self._on_answer, question, worker, at)
            self._dispatcher.call((self._pool, worker), "recognise", listed, then=then)

    def _on_answer(
        self, question: _Question, worker: int, at: npt.NDArray[np.intp], done: Done
    ) -> None:
        question.waiting -= 1
        if isinstance(done.error, TransientError):
            # What it would have known is asked about again in the next pass.
            self._asked.discard(worker)
            self._on_lost(worker, done.error)
        elif done.error is not None:
            raise done.error
        elif worker in self._asked:
            answer: Recognised = done.value
            question.to_read.append(at[answer.others])
            self._on_recognised(worker, answer.counts)

    def _close(self, question: _Question) -> None:
        to_read = np.zeros(sum(len(split.paths) for split in question.splits), bool)
        for at in question.to_read:
            to_read[at] = True
        start = 0
        for split in question.splits:
            size = len(split.paths)
            chosen = to_read[start : start + size].tolist()
            start += size
            if any(chosen):
                self._found.append((tuple(compress(split.paths, chosen)), size))
            if not all(chosen):
                self._listed.append(_without(split, chosen) if any(chosen) else split)


def known_shards(
    context: RunContext, segments: Mapping[int, int], options: RunOptions
) -> ShardPlan | None:
    """The shards, if there may be documents in them that need not be read.

    Args:
        context: of the run.
        segments: by shard, how many there are.
        options: of the run.
    """
    some = any(segments.values()) and not options.reread
    return ShardPlan(context.settings.shard_count) if some else None


def cut(parts: Iterable[tuple[Sequence[str], int]], number: int = 0) -> Iterator[Split]:
    """Splits of what is left of others, each as much as one of these at most.

    Args:
        parts: paths that are left of a split, and how many it had.
        number: of the first new one.
    """
    paths: list[str] = []
    share = 0.0
    for left, size in parts:
        if paths and share + len(left) / size > 1:
            yield Split(number, tuple(paths))
            number, paths, share = number + 1, [], 0.0
        paths += left
        share += len(left) / size
    if paths:
        yield Split(number, tuple(paths))


def only_of(splits: Sequence[Split], ids: Collection[str]) -> list[Split]:
    """What has to be read for some documents: where each file is one, only the files of these."""
    if not any(split.tags for split in splits):
        return list(splits)
    chosen = (([p for p in s.paths if doc_id_of(p) in ids], len(s.paths)) for s in splits)
    return list(cut(chosen))


def _without(split: Split, chosen: Sequence[bool]) -> Split:
    others = [not each for each in chosen]
    tags = np.frombuffer(split.tags, f"V{TAG_BYTES}")[others].tobytes()
    return Split(split.number, tuple(compress(split.paths, others)), tags)


def _groups(splits: Iterable[Split]) -> Iterator[list[Split]]:
    group: list[Split] = []
    size = 0
    for split in splits:
        group.append(split)
        size += len(split.paths)
        if size >= _AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group
