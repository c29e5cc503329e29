"""The rate budget in simulated time: limits in every window, use, fairness, leases, cool-downs."""

import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embedmill.rate_budget import SECOND, Ask, Limits, RateBudget
from embedmill.testing.provider_traffic import Sender, Traffic, emptiest, fullest

MINUTE = 60 * SECOND


def traffic_of(limits, seed=0):
    return Traffic(RateBudget(limits, SECOND), random.Random(seed))


@st.composite
def senders(draw, transit):
    actual = draw(st.sampled_from([1.0, 0.7, 0.1]))
    fates = draw(st.lists(st.sampled_from(["reply", "lost", "late"]), min_size=1, max_size=4))
    dies = draw(st.sampled_from([0, 0, 5]))
    return Sender(
        sizes=draw(st.lists(st.integers(1, 4_000), min_size=1, max_size=4)),
        inputs=draw(st.lists(st.integers(1, 96), min_size=1, max_size=3)),
        actual=lambda estimate: max(1, int(actual * estimate)),
        transit=draw(st.integers(0, transit)),
        latency=draw(st.integers(SECOND // 10, 3 * SECOND)),
        fate=lambda number: "die" if number == dies else _fate(fates, number),
        tenant=draw(st.sampled_from(["a", "b"])),
        weight=draw(st.integers(1, 3)),
    )


def _fate(fates, number):
    # Late is tried again under the same number: it must not be late for ever.
    fate = fates.pop() if len(fates) > 1 else fates[0]
    return "reply" if fate == "late" and len(fates) == 1 else fate


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_no_window_of_the_provider_holds_more_than_the_limits(data):
    limits = Limits(
        requests=data.draw(st.none() | st.integers(1, 300)),
        tokens=data.draw(st.none() | st.integers(4_000, 100_000)),
        inputs=data.draw(st.none() | st.integers(96, 2_000)),
        concurrent=data.draw(st.none() | st.integers(1, 5)),
        window=10 * SECOND,
        transit=data.draw(st.integers(1, 2 * SECOND)),
    )
    all_senders = data.draw(st.lists(senders(limits.transit), min_size=1, max_size=6))
    traffic = traffic_of(limits, data.draw(st.integers(0, 99)))
    traffic.run(all_senders, 25 * SECOND)
    if data.draw(st.booleans()):
        # After a pause nothing may burst.
        traffic.now += data.draw(st.integers(0, 15 * SECOND))
        traffic.run(all_senders, traffic.now + 15 * SECOND)
    requests, tokens, inputs = fullest(traffic.arrivals, limits.window)
    assert limits.requests is None or requests <= limits.requests
    assert limits.tokens is None or tokens <= limits.tokens
    assert limits.inputs is None or inputs <= limits.inputs


@pytest.mark.parametrize(
    ("limits", "sender"),
    [
        (Limits(requests=600, tokens=10**9), Sender()),
        (Limits(requests=10**6, tokens=1_000_000), Sender(sizes=(7_500, 10_000, 9_000))),
        (Limits(tokens=1_000_000), Sender(sizes=(9_000,), latency=2 * SECOND)),
        (Limits(tokens=1_000_000), Sender(sizes=(9_000,), actual=lambda tokens: tokens * 2 // 3)),
        (Limits(inputs=2_000), Sender(inputs=(95,))),
        (Limits(requests=10**6, inputs=2_000), Sender(inputs=(1, 7, 30))),
        (Limits(requests=600), Sender(transit=SECOND, latency=0)),
        (Limits(requests=600), Sender(fate=lambda number: "lost" if number % 9 == 0 else "reply")),
    ],
    ids=[
        "requests",
        "tokens",
        "slow-replies",
        "estimates-too-high",
        "inputs",
        "inputs-of-small-requests",
        "slow-network",
        "lost",
    ],
)
def test_nearly_all_of_the_limit_is_used_in_every_minute(limits, sender):
    traffic = traffic_of(limits)
    traffic.run([sender] * 16, 3 * MINUTE)
    most = fullest(traffic.arrivals, limits.window)
    least = emptiest(traffic.arrivals, limits.window, SECOND, traffic.now)
    allowed = (limits.requests, limits.tokens, limits.inputs)
    assert all(limit is None or used <= limit for used, limit in zip(most, allowed, strict=True))
    shares = [used / limit for used, limit in zip(least, allowed, strict=True) if limit]
    assert max(shares) >= 0.95


def test_what_waits_is_sent_evenly():
    traffic = traffic_of(Limits(requests=600))
    traffic.run([Sender(transit=0)] * 16, MINUTE)
    assert fullest(traffic.arrivals, SECOND)[0] <= 600 / 60 + 12 + 1
    assert fullest(traffic.arrivals, 10 * SECOND)[0] <= 600 / 6 + 12 + 1


def test_a_request_over_the_limit_has_a_window_for_itself():
    traffic = traffic_of(Limits(tokens=1_000))
    traffic.run([Sender(sizes=(5_000,), transit=0)] * 3, 5 * MINUTE)
    assert fullest(traffic.arrivals, MINUTE)[0] == 1
    assert len(traffic.arrivals) >= 4


def ask(ticket, **more):
    return Ask(ticket=ticket, tokens=more.pop("tokens", 10), hold=5 * SECOND, **more)


def test_a_holder_that_dies_gives_its_place_back():
    budget = RateBudget(Limits(concurrent=1), 0)
    assert budget.ask(ask("dies"), 0).why == "granted"
    waits = budget.ask(ask("waits"), SECOND)
    assert (waits.why, waits.wait > 0) == ("rate", True)
    assert budget.ask(ask("waits"), 5 * SECOND - 1).why == "rate"
    assert budget.ask(ask("waits"), 5 * SECOND).why == "granted"


def test_never_more_requests_are_on_their_way_than_allowed():
    traffic = traffic_of(Limits(concurrent=4))
    traffic.run([Sender(transit=0, latency=SECOND)] * 16, 20 * SECOND)
    assert fullest(traffic.arrivals, SECOND)[0] == 4
    assert len(traffic.arrivals) >= 0.9 * 4 * 20


def test_a_question_that_is_repeated_is_decided_once():
    budget = RateBudget(Limits(requests=2), 0)
    first = budget.ask(ask("a"), 0)
    assert budget.ask(ask("a"), 0) == first
    assert budget.ask(ask("b"), 30 * SECOND).why == "granted"
    assert budget.ask(ask("c"), 31 * SECOND).why == "rate"


def test_what_was_not_sent_is_free_again():
    budget = RateBudget(Limits(requests=1, concurrent=1), 0)
    budget.ask(ask("a"), 0)
    budget.withdraw("a", 1)
    assert budget.ask(ask("b"), 2).why == "granted"


def test_inputs_that_were_sent_count_and_those_that_were_not_do_not():
    budget = RateBudget(Limits(inputs=100), 0)
    budget.ask(ask("a", inputs=80), 0)
    budget.settle("a", 1, SECOND)
    assert budget.ask(ask("b", inputs=30), SECOND).why == "rate"
    budget.ask(ask("c", inputs=20), 58 * SECOND)
    budget.withdraw("c", 58 * SECOND)
    assert budget.ask(ask("d", inputs=20), 59 * SECOND).why == "granted"


def test_an_estimate_that_was_too_high_is_corrected():
    budget = RateBudget(Limits(tokens=100), 0)
    budget.ask(ask("a", tokens=100), 0)
    assert budget.ask(ask("b", tokens=50), SECOND).why == "rate"
    budget.settle("a", 10, SECOND)
    assert budget.ask(ask("b", tokens=50), 6 * SECOND).why == "granted"


def test_older_work_goes_first_so_that_what_was_begun_ends():
    traffic = traffic_of(Limits(requests=60))
    finished = Counter()

    def fate_of(number):
        def fate(request):
            finished[number] += 1
            return "reply"

        return fate

    traffic.run([Sender(fate=fate_of(number), requests=1000) for number in range(30)], 3 * MINUTE)
    # Without an order each of the thirty would have had six.
    assert finished.most_common(1)[0][1] > 60
    assert sum(finished.values()) >= 177


@pytest.mark.parametrize("weights", [(1, 1), (3, 1)])
def test_tenants_share_by_weight_however_many_workers_they_have(weights):
    traffic = traffic_of(Limits(requests=1200))
    many = [Sender(tenant="many", weight=weights[1], transit=0)] * 24
    few = [Sender(tenant="few", weight=weights[0], transit=0)] * 6
    traffic.run([*many, *few], 2 * MINUTE)
    had = Counter(arrival.tenant for arrival in traffic.arrivals)
    assert had.total() >= 0.95 * 2400
    share = weights[0] / sum(weights)
    assert had["few"] / had.total() == pytest.approx(share, abs=0.05)


def test_a_tenant_alone_has_everything_and_has_to_share_at_once():
    traffic = traffic_of(Limits(requests=1200))
    traffic.run([Sender(tenant="first", transit=0)] * 16, MINUTE)
    assert len(traffic.arrivals) >= 0.95 * 1200
    traffic.run([Sender(tenant="second", transit=0)] * 16, 2 * MINUTE)
    had = Counter(a.tenant for a in traffic.arrivals if a.time >= MINUTE)
    assert had["second"] / had.total() == pytest.approx(0.5, abs=0.05)


def test_one_refusal_cools_everybody_down_for_as_long_as_it_says():
    budget = RateBudget(Limits(requests=6000), 0)
    budget.ask(ask("a"), 0)
    budget.ask(ask("b"), 0)
    assert budget.throttle("a", 7 * SECOND, SECOND) == 7 * SECOND
    # Of the same moment: no new refusal.
    assert budget.throttle("b", None, SECOND) == 7 * SECOND
    other = budget.ask(ask("c"), 2 * SECOND)
    assert (other.why, other.wait) == ("cooling", 6 * SECOND)
    assert budget.ask(ask("c"), 8 * SECOND).why == "granted"
    # One at a time at first.
    assert budget.ask(ask("d"), 8 * SECOND).why == "rate"
    budget.settle("c", None, 8 * SECOND + 1)
    assert budget.ask(ask("d"), 8 * SECOND + SECOND // 10).why == "granted"


def test_without_a_word_of_the_provider_pauses_double_and_end_with_a_success():
    budget, now, pauses = RateBudget(Limits(), 0), 0, []
    for number in range(9):
        budget.ask(ask(f"a{number}"), now)
        pause = budget.throttle(f"a{number}", None, now)
        pauses.append(pause / SECOND)
        now += pause
    assert pauses == [0.25, 0.5, 1, 2, 4, 8, 16, 30, 30]
    budget.ask(ask("good"), now)
    budget.settle("good", None, now)
    budget.ask(ask("bad"), now)
    assert budget.throttle("bad", None, now) == SECOND // 4


def test_after_a_cool_down_the_rate_comes_back_in_ten_seconds():
    traffic = traffic_of(Limits(requests=6000))
    traffic.run([Sender(transit=0)] * 16, 10 * SECOND)
    traffic.budget.throttle("unknown", 2 * SECOND, traffic.now)
    traffic.arrivals.clear()
    traffic.run([], 40 * SECOND)
    times = [arrival.time for arrival in traffic.arrivals]
    # Permits that were out already go out.
    assert not [time for time in times if 10.6 * SECOND < time < 12 * SECOND]
    second = Counter(time // SECOND for time in times)
    assert second[13] <= 75
    assert second[30] >= 95


def test_a_budget_that_is_begun_anew_learns_what_was_spent_from_those_who_live():
    limits = Limits(money=3 * 10**9, price=10**9)
    before, after = RateBudget(limits, 0), RateBudget(limits, 9)
    before.ask(ask("a1", tokens=1000, holder="a"), 0)
    before.settle("a1", 1000, 1)
    # Told again of what is known.
    before.ask(ask("a2", tokens=1000, holder="a", paid=10**9), 2)
    assert before.spent == 2 * 10**9
    assert after.ask(ask("b1", tokens=1000, whole=1000, holder="b", paid=10**9), 9).why == "granted"
    again = after.ask(ask("a3", tokens=1000, whole=1000, holder="a", paid=2 * 10**9), 10)
    assert (again.why, after.spent) == ("money", 4 * 10**9)


def test_money_that_is_spent_stops_new_work_and_lets_what_was_begun_end():
    # 1,000 tokens cost a dollar.
    budget = RateBudget(Limits(money=3 * 10**9, price=10**9), 0)
    assert budget.ask(ask("a1", tokens=1000, whole=2000), 0).why == "granted"
    # It may turn out to cost less.
    early = budget.ask(ask("b1", tokens=1000, whole=3000), 1)
    assert (early.why, early.wait > 0) == ("money", True)
    budget.settle("a1", 1000, 2)
    assert budget.ask(ask("a2", tokens=1000, since=1), 3).why == "granted"
    budget.settle("a2", 900, 4)
    assert budget.spent == 19 * 10**8
    spent = budget.ask(ask("b1", tokens=1000, whole=1200), 5)
    assert (spent.why, spent.wait) == ("money", 0)
    assert budget.ask(ask("c1", tokens=1000, whole=1000), 5).why == "granted"
