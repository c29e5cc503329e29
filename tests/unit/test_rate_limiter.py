"""How a process keeps to a budget: waiting, late permits, a keeper out of reach, money, use."""

from dataclasses import asdict, fields

import pytest

from embedmill.budget_keeper import LocalKeeper
from embedmill.counts import RateUse
from embedmill.errors import RateLimitedError, StopRunError, TransientError
from embedmill.rate_budget import SECOND, Limits
from embedmill.rate_limiter import Holder, RateLimiter


class Time:
    """Passes when somebody sleeps."""

    def __init__(self):
        self.now = 100.0
        self.slept = []

    def clock(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


class Keeper:
    """A budget in this process, with accidents before its answers."""

    def __init__(self, limits, time, accidents=()):
        self.real = LocalKeeper(limits, time.clock)
        self.accidents = list(accidents)
        self.withdrawn = []

    def _meet(self):
        if self.accidents:
            self.accidents.pop(0)()

    def ask(self, ask):
        answer = self.real.ask(ask)
        self._meet()
        return answer

    def settle(self, ticket, tokens):
        self._meet()
        self.real.settle(ticket, tokens)

    def throttle(self, ticket, retry_after):
        self._meet()
        return self.real.throttle(ticket, retry_after)

    def lose(self, ticket):
        self._meet()
        self.real.lose(ticket)

    def withdraw(self, ticket):
        self.withdrawn.append(ticket)
        self.real.withdraw(ticket)


def out_of_reach():
    raise TransientError("no answer")


class Rig:
    def __init__(self, limits=None, accidents=(), **holder):
        limits = limits or Limits()
        self.time = Time()
        self.keeper = Keeper(limits, self.time, accidents)
        self.limiter = RateLimiter(
            self.keeper, limits, Holder(**holder), clock=self.time.clock, sleep=self.time.sleep
        )

    def later(self, seconds):
        """An answer that takes so long to come back."""
        return lambda: self.time.sleep(seconds)


def test_requests_wait_for_their_time_and_the_waiting_is_counted():
    rig = Rig(Limits(requests=60))
    turn = rig.limiter.turn(30)
    for _ in range(3):
        turn.acquire(10).settle(8)
    assert rig.time.now == pytest.approx(102)
    use = rig.limiter.take_use()
    assert (use.requests, use.tokens, use.throttled) == (3, 24, 0)
    assert use.waited_s == pytest.approx(2)
    assert rig.limiter.take_use().requests == 0


def test_a_permit_that_comes_too_late_is_not_used():
    rig = Rig(Limits(requests=600))
    rig.keeper.accidents = [rig.later(0.6), rig.later(0.4)]
    rig.limiter.turn().acquire(1)
    assert len(rig.keeper.withdrawn) == 1
    assert rig.limiter.take_use().requests == 1


def test_a_keeper_that_is_always_late_does_not_stop_everything():
    rig = Rig(Limits(requests=600))
    rig.keeper.accidents = [rig.later(0.9) for _ in range(20)]
    rig.limiter.turn().acquire(1)
    assert len(rig.keeper.withdrawn) == 5


def test_a_keeper_out_of_reach_is_asked_again():
    rig = Rig(accidents=[out_of_reach] * 3)
    rig.limiter.turn().acquire(1)
    assert rig.time.slept == [0.25, 0.5, 1.0]


def test_a_keeper_that_stays_out_of_reach_is_given_up():
    rig = Rig(accidents=[out_of_reach] * 100, patience_s=600)
    with pytest.raises(TransientError):
        rig.limiter.turn().acquire(1)
    assert sum(rig.time.slept) <= 30


def test_what_was_begun_is_not_given_up_so_soon():
    rig = Rig(patience_s=600)
    turn = rig.limiter.turn()
    turn.acquire(1)
    rig.keeper.accidents = [out_of_reach] * 100
    with pytest.raises(TransientError):
        turn.acquire(1)
    assert 500 < sum(rig.time.slept) <= 600


def test_a_reply_is_worth_more_than_telling_of_it():
    rig = Rig()
    turn = rig.limiter.turn()
    permit = turn.acquire(5)
    rig.keeper.accidents = [out_of_reach]
    permit.settle(5)
    permit = turn.acquire(5)
    rig.keeper.accidents = [out_of_reach]
    assert permit.throttled(3.0) == 3.0
    assert rig.limiter.take_use().tokens == 5


def test_what_was_not_begun_is_given_up_when_it_takes_too_long_and_what_was_begun_is_not():
    rig = Rig(Limits(requests=1), patience_s=30)
    other, turn = rig.limiter.turn(), rig.limiter.turn()
    turn.acquire(1).settle()
    with pytest.raises(RateLimitedError) as limited:
        other.acquire(1)
    assert limited.value.retry_after > 0
    assert len(rig.keeper.withdrawn) == 1
    turn.acquire(1).settle()
    assert rig.time.now == pytest.approx(160, abs=1)


def test_spent_money_stops_the_run_and_says_what_to_change():
    rig = Rig(Limits(money=2 * 10**9, price=10**9))
    rig.limiter.turn(1900).acquire(1900).settle(1900)
    with pytest.raises(StopRunError, match="2 dollars") as stopped:
        rig.limiter.turn(101).acquire(101)
    assert stopped.value.code == "dollars"
    assert "rate_budget.dollars" in stopped.value.hint
    assert rig.limiter.take_use().dollars == pytest.approx(1.9)
    rig.limiter.turn(100).acquire(100)


def test_work_that_takes_longer_than_it_may_is_not_begun():
    rig = Rig(Limits(tokens=10_000), deadline_s=900)
    rig.limiter.turn(100_000)
    with pytest.raises(StopRunError, match="1,200 s at 10,000 tokens a minute") as stopped:
        rig.limiter.turn(200_000)
    assert "call_deadline_s to 2400" in stopped.value.hint


def test_a_refusal_is_waited_out_by_everybody():
    rig = Rig()
    one, other = rig.limiter.turn(), rig.limiter.turn()
    assert one.acquire(1).throttled(7.0) == 7.0
    other.acquire(1)
    assert rig.time.now == pytest.approx(107)
    assert rig.limiter.take_use().throttled == 1


@pytest.mark.parametrize(
    ("requests", "tokens", "most", "size"),
    [
        (None, None, 250_000, 250_000),
        (3000, 1_000_000, 250_000, 10_000),
        (3, 10_000, 250_000, 3_333),
        (None, 1_000_000, 500, 500),
        (10, 5, 500, 1),
    ],
)
def test_requests_are_so_small_that_the_limit_can_be_used(requests, tokens, most, size):
    rig = Rig(Limits(requests=requests, tokens=tokens))
    assert rig.limiter.tokens_per_request(most) == size


@pytest.mark.parametrize(
    ("inputs", "size"), [(None, 96), (2000, 95), (96, 96), (100, 50), (10, 10), (1, 1)]
)
def test_requests_have_so_many_texts_that_full_ones_use_up_the_limit(inputs, size):
    assert Rig(Limits(inputs=inputs)).limiter.inputs_per_request(96) == size


def test_texts_that_take_longer_than_they_may_are_not_begun():
    rig = Rig(Limits(inputs=2000), deadline_s=900)
    rig.limiter.turn(10**9, 20_000)
    with pytest.raises(StopRunError, match="1,500 s at 2,000 texts a minute"):
        rig.limiter.turn(1, 50_000)


def test_what_the_provider_states_binds_where_it_is_less_and_is_said_once(caplog):
    rig = Rig(Limits(requests=600, tokens=1000), share=0.5)
    for _ in range(3):
        rig.limiter.heed({"x-ratelimit-limit-requests": "120", "x-ratelimit-limit-tokens": "9000"})
    assert (rig.limiter.limits.requests, rig.limiter.limits.tokens) == (60, 1000)
    assert len(caplog.records) == 1
    turn = rig.limiter.turn()
    for _ in range(11):
        turn.acquire(1).settle()
    assert rig.time.now - 100 == pytest.approx(10, abs=1)
    use = rig.limiter.take_use() + RateUse()
    # What is less in the settings is no news.
    assert (use.stated_requests, use.stated_tokens) == (60, 0)


def test_what_the_provider_states_is_no_news_where_the_settings_ask_for_less(caplog):
    rig = Rig(Limits(requests=60))
    rig.limiter.heed({"x-ratelimit-limit-requests": "120"})
    assert rig.limiter.limits == Limits(requests=60)
    assert not caplog.records
    assert rig.limiter.take_use() == RateUse()


def test_use_adds_up_but_for_limits_of_which_the_lowest_counts():
    use = RateUse(*range(1, 1 + len(fields(RateUse))))
    other = RateUse(stated_tokens=3)
    sums = {field.name: 2 * getattr(use, field.name) for field in fields(RateUse)}
    sums |= {"stated_requests": use.stated_requests, "stated_tokens": 3}
    assert asdict(use + other + use) == sums


def test_tickets_of_two_processes_differ():
    assert Rig().limiter.ticket() != Rig().limiter.ticket()


def test_a_window_is_a_minute():
    assert Limits().window == 60 * SECOND
