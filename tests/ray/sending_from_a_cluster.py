"""A cluster of its own whose workers send under a budget in Redis: port, URL, tenant, seconds."""

import json
import sys
import time

from actors.actor_pool import RayExecutor
from embedmill.executor import WorkerSpec
from embedmill.rate_budget import SECOND, Limits
from embedmill.rate_budget_settings import RedisSettings
from embedmill.rate_limiter import Holder
from embedmill.redis_budget import RedisKeeper
from embedmill.testing.request_sender import RequestSender

WORKERS = 4
LIMITS = Limits(requests=500, tokens=10_000, window=20 * SECOND, transit=2 * SECOND)


def sender(port, base_url, tenant, seed):
    """Built in the worker: no client travels."""
    keeper = RedisKeeper(RedisSettings(kind="redis", port=port), "shared", LIMITS)
    return RequestSender(keeper, LIMITS, base_url, Holder(tenant=tenant), seed)


def main():
    port, base_url, tenant, seconds = sys.argv[1:]
    executor = RayExecutor(object_store_bytes=100 * 2**20, cpus=2)
    executor.add_pool(
        "send",
        [WorkerSpec(sender, (int(port), base_url, tenant, seed)) for seed in range(WORKERS)],
    )
    run(executor, "ready")
    began = time.monotonic()
    uses = run(executor, "send", float(seconds), (20, 25, 30))
    ended = began + float(seconds)
    executor.close()
    said = {"began": began, "ended": ended}
    for count in ("tokens", "throttled"):
        said[count] = sum(getattr(use, count) for use in uses)
    sys.stdout.write(json.dumps(said))


def run(executor, method, *arguments):
    for worker in range(WORKERS):
        executor.submit("send", worker, method, *arguments)
    values = []
    while len(values) < WORKERS:
        for done in executor.wait(60):
            if done.error is not None:
                raise done.error
            values.append(done.value)
    return values


if __name__ == "__main__":
    main()
