"""The rate budget in a real Redis: it decides as the one in this process does."""

import itertools
import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("redis")

import redis

from embedmill.errors import RefusedError, StopRunError, TransientError
from embedmill.rate_budget import SECOND, Ask, Limits, RateBudget
from embedmill.rate_budget_settings import RedisSettings
from embedmill.redis_budget import RedisKeeper
from embedmill.stated_limits import StatedLimits
from embedmill.testing.provider_traffic import Sender, Traffic, emptiest, fullest
from embedmill.testing.redis_server import redis_binary, redis_server

DEEDS = ["ask"] * 6 + ["settle"] * 3 + ["throttle", "lose", "withdraw"]
# 2026-11-29, shortly after midnight: all steps lie within one day.
MORNING = 1_795_910_500 * SECOND
_numbers = itertools.count()

pytestmark = pytest.mark.skipif(
    redis_binary() is None, reason="redis-server is not installed: apt-get install redis-server"
)


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as port:
        yield port


@pytest.fixture
def make(port):
    made = []

    def make_one(limits, **more):
        where = RedisSettings(kind="redis", port=port, **more)
        made.append(RedisKeeper(where, f"budget-{next(_numbers)}", limits))
        return made[-1]

    yield make_one
    for keeper in made:
        keeper.close()


@st.composite
def steps(draw):
    """What is done to a budget: times that go on, and some tickets that are used again."""
    tickets, time, done = st.sampled_from([f"t{number}" for number in range(8)]), MORNING, []
    for _ in range(draw(st.integers(1, 40))):
        time += draw(st.sampled_from([0, 1, 999, SECOND // 7, SECOND, 3 * SECOND, 61 * SECOND]))
        deed = draw(st.sampled_from(DEEDS))
        done.append((deed, draw(tickets), time, draw(st.integers(0, 9999))))
    return done


def ask_of(ticket, dice):
    return Ask(
        ticket=ticket,
        tokens=dice.choice([1, 7, 333, 1001, 5000]),
        hold=dice.choice([SECOND // 2, 5 * SECOND]),
        since=dice.choice([0, 0, MORNING - 5, MORNING + SECOND]),
        whole=dice.choice([0, 10, 9000]),
        tenant=dice.choice(["a", "b", "c"]),
        weight=dice.choice([1, 3]),
        inputs=dice.choice([0, 1, 20, 96]),
        stated=StatedLimits(dice.choice([0, 0, 20]), dice.choice([0, 0, 0, 900, 30_000])),
    )


def step(budget, deed, ticket, now, dice):
    match deed:
        case "ask":
            return budget.ask(ask_of(ticket, dice), now)
        case "settle":
            return budget.settle(ticket, dice.choice([None, 0, 5, 2000]), now)
        case "throttle":
            return budget.throttle(ticket, dice.choice([None, 3 * SECOND]), now)
        case "lose":
            return budget.lose(ticket, now)
        case "withdraw":
            return budget.withdraw(ticket, now)


def maybe(lowest, highest):
    return st.none() | st.integers(lowest, highest)


@given(
    steps(),
    st.builds(
        Limits,
        requests=maybe(1, 50),
        tokens=maybe(100, 50_000),
        inputs=maybe(1, 500),
        concurrent=maybe(1, 4),
        money=maybe(10**6, 10**9),
        price=st.integers(0, 10**6),
    ),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_it_decides_as_the_one_in_this_process(make_forever, taken, limits):
    here, there = RateBudget(limits, taken[0][2]), make_forever(limits)
    for deed, ticket, now, seed in taken:
        ours = step(here, deed, ticket, now, random.Random(seed))
        assert step(there, deed, ticket, now, random.Random(seed)) == ours


@pytest.fixture(scope="module")
def make_forever(port):
    keepers = []

    def make_one(limits):
        where = RedisSettings(kind="redis", port=port)
        keepers.append(RedisKeeper(where, f"b{next(_numbers)}", limits))
        return keepers[-1]

    yield make_one
    for keeper in keepers:
        keeper.close()


def test_the_limits_hold_and_are_used_there_as_well(make):
    limits = Limits(requests=600, tokens=300_000)
    traffic = Traffic(make(limits), random.Random(1), now=MORNING)
    traffic.run([Sender(sizes=(400, 500))] * 4, MORNING + 100 * SECOND)
    assert fullest(traffic.arrivals, limits.window)[0] <= 600
    assert emptiest(traffic.arrivals, limits.window, MORNING, traffic.now)[0] >= 0.95 * 600


def test_a_budget_of_before_there_was_a_limit_of_inputs_goes_on(make, port):
    keeper = make(Limits(requests=2, inputs=100))
    assert keeper.ask(Ask("a", 1, SECOND, inputs=60), MORNING).why == "granted"
    client = redis.Redis(port=port)
    client.hdel(keeper._key, "free_inputs", "total_inputs")
    client.delete(f"{keeper._key}:inputs")
    client.close()
    keeper.settle("a", None, MORNING + SECOND)
    assert keeper.ask(Ask("b", 1, SECOND, inputs=60), MORNING + 31 * SECOND).why == "granted"
    assert keeper.ask(Ask("c", 1, SECOND, inputs=60), MORNING + 62 * SECOND).why == "rate"


def test_the_money_of_a_day_is_there_again_on_the_next(make):
    keeper = make(Limits(money=10**9, price=10**9))
    assert keeper.ask(Ask("a", 1000, SECOND, whole=1000), MORNING).why == "granted"
    keeper.settle("a", None, MORNING)
    assert keeper.ask(Ask("b", 1000, SECOND, whole=1000), MORNING + SECOND).why == "money"
    assert (
        keeper.ask(Ask("b", 1000, SECOND, whole=1000), MORNING + 86_400 * SECOND).why == "granted"
    )


def test_its_clock_is_the_servers_and_nothing_stays_for_ever(make, port):
    keeper = make(Limits(concurrent=1))
    assert keeper.ask(Ask("a", 1, SECOND)).why == "granted"
    assert keeper.ask(Ask("b", 1, SECOND)).why == "rate"
    client = redis.Redis(port=port)
    kept = [client.ttl(key) for key in client.keys(f"{keeper._key}*")]
    client.close()
    assert kept
    assert all(0 < seconds <= 2 * 86_400 for seconds in kept)


def test_a_server_out_of_reach_may_be_back_soon(tmp_path):
    with redis_server(tmp_path) as port:
        keeper = RedisKeeper(RedisSettings(kind="redis", port=port), "b", Limits())
        keeper.check()
        keeper.ask(Ask("a", 1, SECOND))
    with pytest.raises(TransientError, match=str(port)):
        keeper.ask(Ask("b", 1, SECOND))
    with pytest.raises(RefusedError, match=str(port)) as refused:
        keeper.check()
    assert "rate_budget.shared_by" in refused.value.hint
    keeper.close()


def test_a_server_that_does_not_let_us_in_stops_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("REDIS_PASSWORD", "wrong")
    with redis_server(tmp_path) as port:
        admin = redis.Redis(port=port)
        admin.config_set("requirepass", "right")
        for password in (None, "${REDIS_PASSWORD}"):
            where = RedisSettings(kind="redis", port=port, password=password)
            keeper = RedisKeeper(where, "b", Limits())
            with pytest.raises(StopRunError, match="refuses us"):
                keeper.ask(Ask("a", 1, SECOND))
            keeper.close()
        admin.close()
