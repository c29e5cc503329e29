"""The stage of embedding jobs: who is asked, when, and what happens when nobody answers."""

import pytest

from actors.embedding_job_runner import JobsAdvanced
from embedmill.counts import ChunkCounts
from embedmill.errors import RateLimitedError, StopRunError, TransientError
from embedmill.executor import WorkerSpec
from embedmill.segment import SegmentKey
from embedmill.testing.scripted_executor import ScriptedExecutor, no_accident
from embedmill.text_index import Loan
from pipelines.dispatcher import Dispatcher
from pipelines.embed_stage import EMBED
from pipelines.faults import FaultPolicy
from pipelines.job_stage import JobStage

KEYS = [SegmentKey(0, number) for number in range(200)]


class Provider:
    """What outlives runners: jobs by the number of questions until they end."""

    def __init__(self, questions=3, wait_s=60.0):
        self.questions = questions
        self.wait_s = wait_s
        self.resting = True
        self.silent = False
        self.asked = []
        self.errors = []
        self.lives = 0


class StuckRunner:
    """Takes whatever it is offered, and fails once it is to send it."""

    def __init__(self, error):
        self.error = error

    def advance(self, offers, flush):
        if flush:
            raise self.error
        return JobsAdvanced((), 0, len(offers), 0.0, True)


class PlannedRunner:
    """Finishes all that it was offered after some questions."""

    def __init__(self, provider):
        self.provider = provider
        self.offered = []
        provider.lives += 1

    def advance(self, offers, flush):
        provider = self.provider
        provider.asked.append((len(offers), flush))
        if provider.errors:
            error = provider.errors.pop(0)
            if error is not None:
                raise error
        self.offered += [key for key, _ in offers]
        if provider.silent:
            return JobsAdvanced((), 0, len(self.offered), 0.0, provider.resting)
        if not flush:
            return JobsAdvanced((), 0, len(self.offered), 0.0, True)
        provider.questions -= 1
        if provider.questions > 0:
            return JobsAdvanced((), 1, len(self.offered), provider.wait_s, provider.resting)
        done = tuple((key, ChunkCounts(chunks=1, embedded=1)) for key in self.offered)
        self.offered = []
        return JobsAdvanced(done, 0, 0, 0.0, True)


class Stage:
    """A stage over a planned runner."""

    def __init__(self, clock, provider=None, *, wait=True, accident=no_accident, runner=None):
        self.provider = provider or Provider()
        self.clock = clock
        self.embedded = []
        self.more = False
        executor = ScriptedExecutor(accident=accident)
        faults = FaultPolicy(executor, clock)
        self.dispatcher = Dispatcher(executor, faults)
        self.dispatcher.add_pool(EMBED, [runner or WorkerSpec(PlannedRunner, (self.provider,))])
        self.stage = JobStage(
            self.dispatcher,
            faults,
            self.embedded.append,
            more_to_come=lambda: self.more,
            wait=wait,
        )

    def step(self):
        self.stage.pump()
        if self.dispatcher.in_flight:
            self.dispatcher.step(0.0)
        else:
            assert self.stage.retrying
            self.clock.sleep(1.0)

    def run(self, limit=5_000):
        for _ in range(limit):
            if self.stage.idle or self.stage.parked:
                return
            self.step()
        raise AssertionError("no end")


def test_all_segments_are_offered_once_and_get_their_vectors(clock):
    made = Stage(clock)
    for key in KEYS:
        made.stage.add(key)
    made.run()
    assert made.embedded == KEYS
    assert made.stage.counts.embedded == len(KEYS)
    assert [offered for offered, _ in made.provider.asked] == [64, 64, 64, 8, 0, 0]


def test_a_file_is_held_back_while_more_segments_may_come(clock):
    made = Stage(clock)
    made.more = True
    made.stage.add(KEYS[0])
    made.step()
    for _ in range(50):
        made.step()
    assert made.provider.asked == [(1, False)]
    made.more = False
    made.run()
    assert made.provider.asked[1] == (0, True)


def test_a_runner_is_asked_no_more_often_than_it_says(clock):
    made = Stage(clock, Provider(questions=5, wait_s=100.0))
    made.stage.add(KEYS[0])
    made.run()
    assert len(made.provider.asked) == 5
    assert 400 <= clock.now < 410


def test_a_runner_that_says_no_time_is_not_asked_in_a_busy_loop(clock):
    made = Stage(clock, Provider(questions=50, wait_s=0.0))
    clock.per_look = 0.001
    made.stage.add(KEYS[0])
    made.run()
    assert clock.now >= 49 * 0.2


def test_a_runner_that_has_more_to_do_is_asked_again_though_it_has_no_jobs(clock):
    made = Stage(clock)
    made.provider.silent = True
    made.provider.resting = False
    made.stage.add(KEYS[0])
    for _ in range(20):
        made.step()
    assert len(made.provider.asked) > 5
    made.provider.silent = False
    made.run()
    assert made.embedded == [KEYS[0]]


def test_a_new_segment_is_offered_at_once_whatever_the_runner_waits_for(clock):
    made = Stage(clock, Provider(questions=3, wait_s=1_000.0))
    made.stage.add(KEYS[0])
    made.step()
    made.stage.add(KEYS[1])
    made.step()
    assert made.provider.asked == [(1, True), (1, True)]
    assert clock.now < 10


@pytest.mark.parametrize("moment", ["die", "die-after"])
def test_a_runner_that_dies_is_replaced_and_offered_everything_again(clock, moment):
    deaths = {0, 2, 3}
    made = Stage(clock, accident=lambda call: moment if call.turn in deaths else None)
    loans = [Loan(0, KEYS[0], 0)]
    made.stage.add(KEYS[0])
    made.stage.add(KEYS[1], loans)
    made.run()
    assert sorted(made.embedded) == KEYS[:2]
    assert made.stage.counts.embedded == 2
    assert made.provider.lives >= 2


def test_a_runner_that_failed_is_not_trusted_and_a_new_one_is_asked_later(clock):
    made = Stage(clock)
    made.provider.errors = [None, TransientError("the workspace did not answer")]
    made.stage.add(KEYS[0])
    made.run()
    assert made.embedded == [KEYS[0]]
    assert made.provider.lives == 2
    assert made.provider.asked[2] == (1, True)


def test_a_runner_that_fails_is_not_asked_before_its_time(clock):
    made = Stage(clock, Provider(questions=1))
    made.provider.errors = [RateLimitedError("slowly", retry_after=500.0)]
    made.stage.add(KEYS[0])
    made.run()
    assert clock.now >= 500


def test_a_runner_that_is_told_to_go_slowly_for_hours_ends_no_run(clock):
    made = Stage(clock, Provider(questions=1))
    made.provider.errors = [RateLimitedError("slowly", retry_after=600.0)] * 30
    made.stage.add(KEYS[0])
    made.run(limit=100_000)
    assert made.embedded == [KEYS[0]]
    assert clock.now >= 30 * 600


def test_a_runner_that_fails_for_ever_ends_the_run(clock):
    made = Stage(clock)
    made.provider.errors = [TransientError("no")] * 50
    made.stage.add(KEYS[0])
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "retries-exhausted"
    assert "progress of the embedding jobs failed 8 times; the last time: no" in str(stopped.value)


def test_a_runner_that_takes_segments_and_fails_to_send_them_for_ever_ends_the_run(clock):
    made = Stage(clock, runner=WorkerSpec(StuckRunner, (TransientError("no"),)))
    for key in KEYS:
        made.stage.add(key)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "retries-exhausted"


def test_a_runner_that_takes_segments_and_dies_of_sending_them_ends_the_run(clock):
    made = Stage(clock, accident=lambda call: "die" if call.arguments[1] else None)
    for key in KEYS:
        made.stage.add(key)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "crash-loop"


def test_a_runner_that_fails_now_and_then_is_asked_for_days(clock):
    made = Stage(clock, Provider(questions=40))
    made.provider.errors = [TransientError("no"), None] * 20
    made.stage.add(KEYS[0])
    made.run()
    assert made.embedded == [KEYS[0]]


def test_what_no_retry_mends_ends_the_run(clock):
    made = Stage(clock)
    made.provider.errors = [StopRunError("no key", code="credentials")]
    made.stage.add(KEYS[0])
    with pytest.raises(StopRunError, match="no key"):
        made.run()


def test_who_does_not_wait_parks_once_everything_is_submitted(clock):
    made = Stage(clock, Provider(questions=9), wait=False)
    made.stage.add(KEYS[0])
    made.run()
    assert made.stage.parked
    assert not made.stage.idle
    assert made.provider.asked == [(1, True)]
    made.stage.pump()
    assert made.dispatcher.in_flight == 0


def test_who_does_not_wait_stays_while_a_submission_is_under_way(clock):
    made = Stage(clock, Provider(questions=9, wait_s=5.0), wait=False)
    made.provider.resting = False
    made.stage.add(KEYS[0])
    for _ in range(30):
        made.step()
    assert not made.stage.parked
    made.provider.resting = True
    made.run()
    assert made.stage.parked


def test_a_new_segment_ends_the_parking(clock):
    made = Stage(clock, Provider(questions=9), wait=False)
    made.stage.add(KEYS[0])
    made.run()
    made.stage.add(KEYS[1])
    assert not made.stage.parked
    made.run()
    assert made.provider.asked == [(1, True), (1, True)]


def test_a_segment_that_nothing_brings_vectors_to_is_an_error_and_no_hang(clock):
    made = Stage(clock)
    made.provider.silent = True
    made.stage.add(KEYS[0])
    with pytest.raises(RuntimeError, match="1 segment, and no job brings any"):
        made.run()
