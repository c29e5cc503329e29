"""The pace of writes: what slows it down, what speeds it up, what is repeated."""

import pytest

from embedmill.counts import WriteCounts
from embedmill.errors import (
    OutcomeUnknownError,
    PermanentError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.throttle import InFlightShare, Throttle, outcome_of


class Clock:
    """Time passes by sleeping, and by requests."""

    def __init__(self):
        self.now = 0.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(round(seconds, 6))
        self.now += seconds


class Store:
    """Takes requests as planned: seconds that they last, or what they raise."""

    def __init__(self, clock, *plan):
        self.clock = clock
        self.plan = list(plan)
        self.started = []

    def __call__(self):
        self.started.append(round(self.clock.now, 6))
        step = self.plan.pop(0) if self.plan else 1.0
        if isinstance(step, Exception):
            raise step
        self.clock.now += step
        return "done"


def throttle_on(*plan, spread=0.0):
    clock = Clock()
    store = Store(clock, *plan)
    return Throttle(clock=clock, sleep=clock.sleep, spread=spread), store, clock


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (None, "ok"),
        (TransientError("x"), "transient"),
        (RateLimitedError("x"), "transient"),
        (WorkerDiedError("x"), "transient"),
        (OutcomeUnknownError("x"), "unknown"),
        (PermanentError("x"), "permanent-record"),
        (StopRunError("x"), "permanent-config"),
        (RefusedError("x"), "permanent-config"),
    ],
)
def test_every_end_of_a_write_is_of_one_class(error, outcome):
    assert outcome_of(error) == outcome


def test_a_store_that_keeps_up_is_never_waited_for():
    throttle, store, clock = throttle_on()
    for _ in range(100):
        assert throttle(store, 256) == "done"
    assert clock.slept == []
    assert throttle.take_counts() == WriteCounts(requests=100)


def test_too_many_requests_are_waited_for_as_told_and_halve_the_share():
    throttle, store, clock = throttle_on(RateLimitedError("slow down", retry_after=7.0), 1.0)
    assert throttle(store, 256) == "done"
    assert clock.slept == [7.0]
    assert throttle.share == pytest.approx(0.55)
    throttle(store, 256)
    # A request of one second, then a pause in which others may have their requests.
    assert clock.slept[1] == pytest.approx(1 / 0.55 - 1, abs=1e-5)
    counts = throttle.take_counts()
    assert (counts.requests, counts.rate_limited, counts.transient) == (3, 1, 1)
    assert (counts.halvings, counts.waited_s) == (1, pytest.approx(7 + 1 / 0.55 - 1))
    assert throttle.take_counts() == WriteCounts()


def test_what_is_not_told_is_waited_for_ever_longer_and_given_up_at_the_fifth():
    throttle, store, clock = throttle_on(*[OutcomeUnknownError("no reply")] * 9)
    with pytest.raises(OutcomeUnknownError):
        throttle(store, 256)
    assert clock.slept == [0.25, 0.5, 1.0, 2.0]
    assert len(store.started) == 5
    assert throttle.take_counts().unknown == 5
    assert throttle.share == 1 / 32


def test_a_long_wait_is_left_to_the_driver():
    throttle, store, clock = throttle_on(RateLimitedError("tomorrow", retry_after=600.0))
    with pytest.raises(RateLimitedError) as limited:
        throttle(store, 256)
    assert limited.value.retry_after == 600.0
    assert clock.slept == []


@pytest.mark.parametrize("error", [PermanentError("bad"), StopRunError("key"), RefusedError("no")])
def test_what_will_not_pass_is_not_repeated_and_slows_nothing_down(error):
    throttle, store, clock = throttle_on(error)
    with pytest.raises(type(error)):
        throttle(store, 256)
    assert (len(store.started), throttle.share, clock.slept) == (1, 1.0, [])


def test_a_share_is_won_back_request_by_request():
    throttle, store, _ = throttle_on(*[TransientError("busy")] * 4)
    for _ in range(25):
        throttle(store, 256)
    assert throttle.share == 1.0
    throttle.take_counts()
    throttle(store, 256)
    throttle(store, 256)
    assert throttle.take_counts().waited_s == 0.0


def test_the_share_has_an_end_and_so_has_a_pause():
    state = InFlightShare()
    for _ in range(50):
        state.pushed_back()
    assert state.share == 1 / 64
    assert state.pause_after(0.05) == pytest.approx(0.05 * 63)
    assert state.pause_after(2.0) == 5.0


def test_replies_that_become_slower_halve_the_share_before_anything_fails():
    state = InFlightShare()
    for _ in range(20):
        state.ok(0.2, 256)
    for _ in range(8):
        state.ok(2.0, 256)
    assert state.halvings >= 1
    assert state.share < 1


def test_a_small_request_or_a_quick_one_is_no_sign_of_a_slow_store():
    small, quick = InFlightShare(), InFlightShare()
    for _ in range(20):
        small.ok(0.2, 256)
        small.ok(0.6, 3)
        small.ok(9.0, 0)
    for seconds in [0.001] * 20 + [0.01] * 20:
        quick.ok(seconds, 256)
    assert (small.halvings, quick.halvings) == (0, 0)


def test_a_store_that_stays_slower_is_what_it_is_compared_with():
    state = InFlightShare()
    for seconds in [0.2] * 20 + [2.0] * 200:
        state.ok(seconds, 256)
    assert state.share == 1.0
    assert 1 <= state.halvings <= 16


def test_writers_told_to_wait_together_do_not_come_back_together():
    waits = []
    for spread in (0.0, 0.5, 1.0):
        throttle, store, clock = throttle_on(RateLimitedError("x", retry_after=4.0), spread=spread)
        throttle(store, 1)
        waits += clock.slept
    assert waits == [4.0, 4.5, 5.0]


def share_of_each(writers, capacity, rounds=400):
    """Writers beside one another on a store that takes so many requests at a time."""
    states = [InFlightShare(share=1.0 if number else 1 / 64) for number in range(writers)]
    taken, order = [0.0] * writers, list(range(writers))
    for number in range(rounds):
        # Whoever wants a slot when there is none is refused; who comes first goes around.
        order = order[1:] + order[:1]
        demand = 0.0
        for writer in order:
            demand += states[writer].share
            if demand > capacity:
                states[writer].pushed_back()
            else:
                states[writer].ok(0.1, 256)
                taken[writer] += states[writer].share * (number >= rounds // 2)
    return [one / (rounds - rounds // 2) for one in taken]


def test_writers_side_by_side_come_to_equal_shares_of_what_the_store_takes():
    shares = share_of_each(8, capacity=3.0)
    assert max(shares) < 1.5 * min(shares)
    # The last increase was counted in.
    assert 1.5 < sum(shares) <= 3.0 + 8 * 0.05
