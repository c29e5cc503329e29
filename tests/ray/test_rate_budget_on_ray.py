"""Many real workers on Ray under one rate budget: what the provider sees, and who may die."""

import json
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from actors.rate_budget import RateBudgetWorker, RunKeeper
from embedmill.errors import RateLimitedError
from embedmill.executor import WorkerSpec
from embedmill.rate_budget import SECOND, Limits
from embedmill.rate_limiter import Holder
from embedmill.testing.openai_server import Fault, OpenAIServer, ServerOptions
from embedmill.testing.provider_traffic import emptiest, fullest
from embedmill.testing.redis_server import redis_binary, redis_server
from embedmill.testing.request_rates import RateLimits
from embedmill.testing.request_sender import RequestSender, RequestSenders

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]
# A quarter of a minute: what a reply takes, and what other programs take of the machine, is lost in
# every window, and counts four times here.
WINDOW_S = 15
# Windows that are sent for: all that begin in the first seventh of one are looked at.
WINDOWS = 1.2
WORDS = (20, 25, 30)
LIMITS = Limits(requests=375, tokens=7_500, window=WINDOW_S * SECOND, transit=2 * SECOND)
# Where other programs take the machine away for a second, nobody uses all of a limit.
CHANCES = 3


def counting_server(*faults):
    limits = RateLimits(LIMITS.requests, LIMITS.tokens, WINDOW_S)
    return OpenAIServer(
        faults, options=ServerOptions(rates=limits, count_tokens=lambda text: text.count(" "))
    )


class Senders:
    """A budget and workers that send under it: so many processes, of ``each`` workers if given."""

    def __init__(self, executor, server, limits=LIMITS, workers=4, each=None, **holder):
        self.executor = executor
        self.done = []
        executor.add_pool("budget", [WorkerSpec(RateBudgetWorker, (limits,), serves=True)])
        keeper = RunKeeper(executor.line("budget", 0))
        how = (keeper, limits, server.base_url, Holder(**holder))
        specs = [WorkerSpec(RequestSender, (*how, seed)) for seed in range(workers)]
        if each:
            seeds = [range(each * number, each * (number + 1)) for number in range(workers)]
            specs = [WorkerSpec(RequestSenders, (*how, some)) for some in seeds]
        executor.add_pool("send", specs)
        self.workers = workers
        self.all("ready")

    def all(self, method, *arguments):
        for worker in range(self.workers):
            self.executor.submit("send", worker, method, *arguments)
        return [self.next() for _ in range(self.workers)]

    def one(self, worker, method, *arguments):
        self.executor.submit("send", worker, method, *arguments)
        return self.next()

    def next(self):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for done in self.executor.wait(1.0):
                if done.error is not None:
                    raise done.error
                self.done.append(done.value)
            if self.done:
                return self.done.pop()
        raise AssertionError("no end")


def share_used(arrivals, begin, end):
    """The least of the tokens that any window between two times has used, of those allowed."""
    return emptiest(arrivals, LIMITS.window, begin, end)[1] / LIMITS.tokens


def require_limits(rates, uses):
    """Every window is within the limits, nothing was refused, and all of it is accounted for."""
    requests, tokens, _ = fullest(rates.arrivals, LIMITS.window)
    assert requests <= LIMITS.requests
    assert tokens <= LIMITS.tokens
    assert rates.refused == 0
    assert sum(use["throttled"] for use in uses) == 0
    assert sum(use["tokens"] for use in uses) == sum(arrival.tokens for arrival in rates.arrivals)


def test_sixteen_workers_use_nearly_all_of_the_limits_and_never_more(open_executor):
    executor, shares = open_executor(), []
    for _ in range(CHANCES):
        with counting_server() as server:
            uses = Senders(executor, server, each=4).all("send", WINDOWS * WINDOW_S, WORDS)
            rates = server.account.rates
        require_limits(rates, [asdict(use) for some in uses for use in some])
        first = rates.arrivals[0].time
        end = first + round((WINDOWS - 0.05) * LIMITS.window)
        shares.append(share_used(rates.arrivals, first, end))
        if shares[-1] >= 0.95:
            return
    raise AssertionError(shares)


def test_one_refusal_cools_all_workers_down_and_is_the_last(open_executor):
    hour = 3600
    with counting_server(Fault(at="embeddings", do="rate-limit", value=str(hour))) as server:
        senders = Senders(open_executor(), server, workers=2)
        assert senders.one(0, "send_one", 20).throttled == 1
        for worker in range(senders.workers):
            # Nobody waits so long for a first permit.
            with pytest.raises(RateLimitedError, match="permits no request") as caught:
                senders.one(worker, "send_one", 20)
            assert hour / 2 < caught.value.retry_after <= hour
    assert len(server.requests) == 1


def test_the_place_of_a_worker_that_was_killed_is_free_again(open_executor, kill_worker):
    executor = open_executor()
    with counting_server() as server:
        senders = Senders(executor, server, Limits(concurrent=1), workers=2, hold_s=2.0)
        senders.one(0, "hold")
        kill_worker(executor, "send", 0)
        began = time.monotonic()
        senders.one(1, "hold")
        # It is held for two seconds; the rest is for a busy machine.
        assert time.monotonic() - began < 30


def test_the_budget_goes_on_when_the_process_that_keeps_it_is_killed(open_executor, kill_worker):
    executor = open_executor()
    with counting_server() as server:
        senders = Senders(executor, server, Limits(requests=100), workers=1)
        senders.one(0, "hold")
        kill_worker(executor, "budget", 0)
        senders.one(0, "hold")


CLUSTER = Path(__file__).with_name("sending_from_a_cluster.py")


@pytest.mark.skipif(
    redis_binary() is None, reason="redis-server is not installed: apt-get install redis-server"
)
def test_two_clusters_share_one_budget_in_redis(tmp_path, open_executor):
    pytest.importorskip("redis")
    import sending_from_a_cluster
    from ray import cloudpickle

    # Workers cannot import it.
    cloudpickle.register_pickle_by_value(sending_from_a_cluster)
    sent = sending_from_a_cluster.sent
    shares = []
    for _ in range(CHANCES):
        with redis_server(tmp_path) as port, counting_server() as server:
            uses = sent_by_two_clusters(sent, open_executor(), port, server.base_url)
            rates = server.account.rates
        require_limits(rates, uses)
        first = rates.arrivals[0].time
        end = first + round((WINDOWS - 0.05) * LIMITS.window)
        shares.append(share_used(rates.arrivals, first, end))
        if shares[-1] >= 0.95:
            had = [use["tokens"] for use in uses]
            assert max(had) <= 1.5 * min(had)
            return
    raise AssertionError(shares)


def sent_by_two_clusters(sent, executor, port, base_url):
    """What each has sent: ours, and one of a process of its own."""
    task = {"limits": asdict(LIMITS), "seconds": WINDOWS * WINDOW_S, "words": WORDS, "workers": 2}
    other = subprocess.Popen(
        [sys.executable, CLUSTER, str(port), base_url, "other", json.dumps(task)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def begin_together():
        # However long either took to start.
        assert other.stdout.readline() == "ready\n"
        other.stdin.write("go\n")
        other.stdin.flush()

    own = sent(executor, port, base_url, "own", task, when_ready=begin_together)
    said = other.communicate(timeout=100)[0]
    assert other.returncode == 0
    return own, json.loads(said.splitlines()[-1])
