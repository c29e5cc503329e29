"""The intake: every segment that the run hears of goes to the stage that it needs, once.

Segments come from earlier runs, from shard workers, from a dead shard worker that could not report
them, and, beside a build, from the runs of others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from actors.shard_worker import Drafted
from embedmill.assembly import Layers
from embedmill.draft_outcome import Committed
from embedmill.segment import SegmentKey
from embedmill.text_index import TextIndex
from embedmill.work_left import lacks_vectors
from pipelines.apply_stage import ApplyStage
from pipelines.dispatcher import Dispatcher
from pipelines.embed_stage import EmbedStage
from pipelines.job_stage import JobStage
from pipelines.survey import NOTHING, Known, Survey


class Intake:
    """Hands segments to the stages that fill the layers which they lack.

    Attributes:
        survey: what it knows of the texts of stored segments.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        layers: Layers,
        shard_workers: int,
        embed: EmbedStage | JobStage,
        apply: ApplyStage,
    ) -> None:
        self._layers = layers
        self._embed = embed
        self._apply = apply
        # The last segment of each shard that was handed on.
        self._announced: dict[int, int] = {}
        self._texts = TextIndex()
        self.survey = Survey(dispatcher, shard_workers, self._texts)

    def resume(self, committed: Mapping[int, Sequence[int]], applied: Mapping[int, int]) -> None:
        """Take what earlier runs left between the layers.

        Args:
            committed: segments of the chunks layer, by shard.
            applied: the last segment that the store has, by shard.
        """
        layers = self._layers
        vectors = {s: set(numbers) for s, numbers in layers.vectors.committed().items()}
        for shard, numbers in sorted(committed.items()):
            last = self._announced[shard] = applied.get(shard, -1)
            if last >= 0:
                self._apply.start_after(shard, last)
            for number in numbers:
                key = SegmentKey(shard, number)
                has_vectors = number in vectors.get(shard, ())
                if number > last:
                    self._take(key, self.survey.of(key), has_vectors=has_vectors)
                elif not has_vectors and lacks_vectors(layers.chunks, layers.vectors, key):
                    # Damaged, and deleted by hand; the store has the records.
                    self._embed.add(key)

    def take_new(self, new: Committed) -> None:
        """Take a segment that a shard worker has committed just now."""
        self._take(new.key, (self._texts.add(new.key, new.text_hashes), frozenset()))

    def take_drafted(self, drafted: Drafted) -> None:
        """Take all segments of a call of a shard worker."""
        for committed in drafted.committed:
            self.take_new(committed)

    def take_unreported(self, shards: Sequence[int]) -> None:
        """Take what a shard worker committed in its shards and could not report."""
        for shard in shards:
            self._take_unannounced(shard, self._layers.chunks.committed_of(shard))

    def catch_up(self) -> int:
        """Take the segments that others have committed since.

        Returns:
            How many there are.
        """
        committed = self._layers.chunks.committed()
        self.survey.read(committed, after=self._announced)
        return sum(self._take_unannounced(s, n) for s, n in sorted(committed.items()))

    def _take_unannounced(self, shard: int, numbers: Sequence[int]) -> int:
        new = [number for number in numbers if number > self._announced.get(shard, -1)]
        for key in (SegmentKey(shard, number) for number in new):
            self._take(key, self.survey.of(key))
        return len(new)

    def _take(self, key: SegmentKey, known: Known = NOTHING, *, has_vectors: bool = False) -> None:
        self._announced[key.shard] = key.number
        self._apply.announce(key)
        if has_vectors:
            self._apply.ready(key)
        else:
            self._embed.add(key, *known)
