"""Many real workers on Ray under one rate budget: what the provider sees, and who may die."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from actors.rate_budget import RateBudgetWorker, RunKeeper
from embedmill.executor import WorkerSpec
from embedmill.rate_budget import SECOND, Limits
from embedmill.rate_limiter import Holder
from embedmill.testing.openai_server import Fault, OpenAIServer, ServerOptions
from embedmill.testing.provider_traffic import emptiest, fullest
from embedmill.testing.redis_server import redis_binary, redis_server
from embedmill.testing.request_rates import RateLimits
from embedmill.testing.request_sender import RequestSender

pytestmark = [pytest.mark.ray, pytest.mark.timeout(180)]
WINDOW_S = 10
WORDS = (20, 25, 30)
LIMITS = Limits(requests=400, tokens=8_000, window=WINDOW_S * SECOND, transit=2 * SECOND)


def counting_server(*faults):
    limits = RateLimits(LIMITS.requests, LIMITS.tokens, WINDOW_S)
    return OpenAIServer(
        faults, options=ServerOptions(rates=limits, count_tokens=lambda text: text.count(" "))
    )


class Senders:
    """A budget and workers that send under it."""

    def __init__(self, executor, server, limits=LIMITS, workers=16, **holder):
        self.executor = executor
        self.done = []
        executor.add_pool("budget", [WorkerSpec(RateBudgetWorker, (limits,), serves=True)])
        keeper = RunKeeper(executor.line("budget", 0))
        executor.add_pool(
            "send",
            [
                WorkerSpec(RequestSender, (keeper, limits, server.base_url, Holder(**holder), seed))
                for seed in range(workers)
            ],
        )
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


def test_sixteen_workers_use_nearly_all_of_the_limits_and_never_more(open_executor):
    with counting_server() as server:
        senders = Senders(open_executor(), server)
        uses = senders.all("send", 2.5 * WINDOW_S, WORDS)
        rates = server.account.rates
    requests, tokens = fullest(rates.arrivals, LIMITS.window)
    assert requests <= LIMITS.requests
    assert tokens <= LIMITS.tokens
    assert rates.refused == 0
    assert sum(use.throttled for use in uses) == 0
    assert sum(use.tokens for use in uses) == sum(arrival.tokens for arrival in rates.arrivals)
    first = rates.arrivals[0].time
    least = emptiest(rates.arrivals, LIMITS.window, first, first + round(2.4 * LIMITS.window))
    assert least[1] >= 0.95 * LIMITS.tokens


def test_one_refusal_cools_all_workers_down_and_is_the_last(open_executor):
    fault = Fault(at="embeddings", do="rate-limit", call=40, value="2")
    with counting_server(fault) as server:
        senders = Senders(open_executor(), server, workers=4)
        uses = senders.all("send", 6, WORDS)
        times = [arrival.time / SECOND for arrival in server.account.rates.arrivals]
    assert sum(use.throttled for use in uses) == 1
    gaps = [after - before for before, after in pairwise(times)]
    # What was permitted half a second before is on its way.
    assert 1.4 <= max(gaps) <= 3


def test_the_place_of_a_worker_that_was_killed_is_free_again(open_executor):
    executor = open_executor()
    with counting_server() as server:
        senders = Senders(executor, server, Limits(concurrent=1), workers=2, hold_s=2.0)
        senders.one(0, "hold")
        os.kill(executor.process_of("send", 0), signal.SIGKILL)
        began = time.monotonic()
        senders.one(1, "hold")
        assert time.monotonic() - began < 10


def test_the_budget_goes_on_when_the_process_that_keeps_it_is_killed(open_executor):
    executor = open_executor()
    with counting_server() as server:
        senders = Senders(executor, server, Limits(requests=100), workers=1)
        senders.one(0, "hold")
        os.kill(executor.process_of("budget", 0), signal.SIGKILL)
        senders.one(0, "hold")


CLUSTER = Path(__file__).with_name("sending_from_a_cluster.py")


@pytest.mark.skipif(
    redis_binary() is None, reason="redis-server is not installed: apt-get install redis-server"
)
def test_two_clusters_share_one_budget_in_redis(tmp_path):
    pytest.importorskip("redis")
    with redis_server(tmp_path) as port, counting_server() as server:
        clusters = [
            subprocess.Popen(
                [sys.executable, CLUSTER, str(port), server.base_url, tenant, str(2 * WINDOW_S)],
                stdout=subprocess.PIPE,
                text=True,
            )
            for tenant in ("one", "other")
        ]
        said = [cluster.communicate(timeout=150)[0] for cluster in clusters]
        rates = server.account.rates
    assert [cluster.returncode for cluster in clusters] == [0, 0]
    uses = [json.loads(text.splitlines()[-1]) for text in said]
    requests, tokens = fullest(rates.arrivals, LIMITS.window)
    assert requests <= LIMITS.requests
    assert tokens <= LIMITS.tokens
    assert rates.refused == 0
    assert sum(use["tokens"] for use in uses) == sum(a.tokens for a in rates.arrivals)
    begin = max(use["began"] for use in uses)
    end = min(use["ended"] for use in uses)
    least = emptiest(rates.arrivals, LIMITS.window, round(begin * SECOND), round(end * SECOND))
    assert least[1] >= 0.95 * LIMITS.tokens
