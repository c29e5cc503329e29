"""A compaction and a build of another version in turns: wherever either is held up, both end well.

A build takes no lease that a compaction holds. Each of the two runs in a thread of its own and is
stopped before a look at the workspace or a change of it, while the other one goes on.
"""

import itertools
import threading
from collections.abc import Callable

import pytest

from embedmill.assembly import Seams, seams, store_of
from embedmill.executor import InlineExecutor
from embedmill.provenance import Provenance
from embedmill.testing.crash_points import CrashingEmbedder, Process
from embedmill.testing.memory_workspace import MemoryWorkspace
from pipelines.compact import compact
from pipelines.reembed import reembed
from pipelines.run_options import RunOptions

OTHER = {"kind": "hashing", "dimension": 12}
# A thread that waits longer for its turn has been forgotten.
_FORGOTTEN_S = 60


class Turn(threading.Thread):
    """Work that stops before its n-th step until it is told to go on; None: it never stops."""

    def __init__(self, work: Callable[[], object], stop_at: int | None = None) -> None:
        super().__init__(name="turn", daemon=True)
        self.steps: list[str] = []
        self.error: Exception | None = None
        self._work, self._stop_at = work, stop_at
        self._halted, self._go = threading.Event(), threading.Event()

    def step(self, what: str) -> None:
        self.steps.append(what)
        if len(self.steps) == self._stop_at:
            self._halted.set()
            assert self._go.wait(_FORGOTTEN_S)

    def run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error
        self._halted.set()

    def until_stopped(self) -> None:
        self.start()
        assert self._halted.wait(_FORGOTTEN_S)

    def to_its_end(self) -> None:
        self._go.set()
        self.join(_FORGOTTEN_S)
        assert not self.is_alive()


class SteppingWorkspace(MemoryWorkspace):
    """Tells the turn that calls it of every call."""

    def _step(self, what: str) -> None:
        current = threading.current_thread()
        if isinstance(current, Turn):
            current.step(what)

    def create(self, path, data):
        self._step(f"create {path}")
        super().create(path, data)

    def read(self, path):
        self._step(f"read {path}")
        return super().read(path)

    def exists(self, path):
        self._step(f"exists {path}")
        return super().exists(path)

    def list(self, prefix):
        self._step(f"list {prefix}")
        yield from super().list(prefix)

    def delete(self, paths):
        for path in paths:
            self._step(f"delete {path}")
            super().delete([path])


class Beside:
    """An index whose segments can be folded, and the two that meet there."""

    def __init__(self, index, said: str = "text number {}") -> None:
        self.index = index
        self.embedded = Process()
        index.workspace = SteppingWorkspace()
        for number in range(3):
            index.ingest({f"doc-{n}": said.format(n) for n in range(number + 1)})
        self._old = index.settings
        index.swap(embedder=OTHER)
        self._start = index.save()

    def again(self) -> "Beside":
        """As it was in the beginning."""
        self.embedded = Process()
        self.index.restore(self._start)
        return self

    def compaction(self, stop_at=None) -> Turn:
        return Turn(lambda: self._run(compact, self._old), stop_at)

    def build(self, stop_at=None) -> Turn:
        return Turn(lambda: self._run(reembed, self.index.settings), stop_at)

    def _run(self, pipeline, settings):
        executor = InlineExecutor()
        choices = RunOptions(clock=self.index.clock, sleep=self.index.clock.sleep)
        try:
            return pipeline(settings, executor, choices)
        finally:
            executor.close()

    def meet(self, first: Turn, second: Turn) -> None:
        """First goes until it stops, second until it stops, first to its end, second to its end."""
        wrappers = Seams(
            workspace=lambda _: self.index.workspace,
            embedder=lambda real: CrashingEmbedder(real, self.embedded),
        )
        with seams(wrappers):
            first.until_stopped()
            second.until_stopped()
            first.to_its_end()
            second.to_its_end()
        for turn in (first, second):
            if turn.error is not None:
                raise turn.error

    def require_all_well(self) -> None:
        """Both versions hold everything, nothing was paid twice, nothing is left lying about."""
        index = self.index
        one, two = index.manifest.versions
        assert two.state == "ready"
        assert found(index, one) == found(index, two) == [f"text number {n}" for n in range(3)]
        assert set(self.embedded.embedded().values()) <= {1}
        index.publish()
        index.compact()
        assert len(index.chunks.committed_of(0)) == 1
        assert index.ids() == index.expected_ids()
        numbered = [path for path in index.workspace.files if "/s0000/" in path]
        assert len({path.rsplit("/", 1)[-1][:8] for path in numbered}) == 1


def found(index, version) -> list[str]:
    store = store_of(index.settings)
    batch = store.fetch(version.collection, sorted(store.ids(version.collection)))
    return sorted(payload["text"] for payload in batch.payloads)


@pytest.fixture
def beside(small_index):
    return Beside(small_index(shard_count=1))


def steps_of(make: Callable[[Beside], Turn], beside: Beside) -> list[str]:
    """What the work looks at and changes when nothing else happens."""
    alone = make(beside.again())
    beside.meet(alone, Turn(lambda: None))
    return alone.steps


def of_interest(steps: list[str]) -> list[int]:
    """Numbers of the steps by which one of the two can see or disturb the other one."""
    seen = ("list ", "create ", "delete ", "read indexes/small/manifest/")
    numbers = [
        n for n, step in enumerate(steps, 1) if step.startswith(seen) and "lease" not in step
    ]
    # Every other one takes half of the time.
    return numbers[::2]


def test_a_build_goes_by_while_a_compaction_is_held_up_anywhere(beside):
    for number in of_interest(steps_of(Beside.compaction, beside)):
        beside.again()
        beside.meet(beside.compaction(number), beside.build())
        beside.require_all_well()


def test_a_compaction_goes_by_while_a_build_is_held_up_anywhere(beside):
    for number in of_interest(steps_of(Beside.build, beside)):
        beside.again()
        beside.meet(beside.build(number), beside.compaction())
        beside.require_all_well()


def test_a_build_may_begin_between_the_last_look_and_the_marker(beside):
    """Both are held up: the one around its marker, the other around its first listing."""
    compaction, build = (
        steps_of(Beside.compaction, beside),
        steps_of(Beside.build, beside),
    )
    marker = next(n for n, step in enumerate(compaction, 1) if step.endswith(".snapshot"))
    first_delete = next(n for n, s in enumerate(compaction, 1) if n > marker and "delete" in s)
    begun = next(n for n, step in enumerate(build, 1) if "create indexes/small/manifest" in step)
    reading = next(n for n, step in enumerate(build, 1) if n > begun and "read" in step)
    made = next(n for n, step in enumerate(build, 1) if "create indexes/small/vectors" in step)
    held = ("/chunks/" in build[n - 1] or n in {begun, made} for n in range(1, reading + 8))
    places = [n for n, holds in enumerate(held, 1) if holds] + [made]
    for here, there in itertools.product((marker, marker + 1, first_delete), places):
        for first in (0, 1):
            beside.again()
            turns = [beside.compaction(here), beside.build(there)]
            beside.meet(turns[first], turns[1 - first])
            beside.require_all_well()


def test_files_stay_while_a_version_that_lacks_the_snapshot_may_read_them(beside):
    compaction = steps_of(Beside.compaction, beside)
    marker = next(n for n, step in enumerate(compaction, 1) if step.endswith(".snapshot"))
    build = steps_of(Beside.build, beside)
    embedding = next(
        n for n, step in enumerate(build, 1) if "create indexes/small/canaries" in step
    )
    held = beside.again().compaction(marker)
    beside.meet(held, beside.build(embedding))
    assert beside.index.chunks.committed_of(0) == [3]
    assert any("/00000000.docs.parquet" in path for path in beside.index.workspace.files)
    beside.require_all_well()


# Of several chunks most are those of an earlier segment.
@pytest.mark.parametrize(
    "said", ["text number {}", "the same four words " * 4], ids=["one chunk", "several"]
)
def test_asking_where_a_chunk_comes_from_is_not_disturbed(small_index, said):
    beside = Beside(small_index(shard_count=1), said)

    def asking(beside: Beside, stop_at=None) -> Turn:
        index = beside.index
        version = index.manifest.versions[0]

        def ask():
            found = Provenance(index.workspace, "small", version).of("doc-1")
            assert "missing" not in {origin.vector for origin in found}
            assert [origin.note for origin in found if not origin.run] == []

        return Turn(ask, stop_at)

    for number in range(1, len(steps_of(asking, beside)) + 1):
        beside.again()
        beside.meet(asking(beside, number), beside.compaction())
