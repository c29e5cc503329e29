"""A cluster of its own whose workers send under a budget in Redis: port, URL, tenant, task.

It says ``ready``, waits for a line, sends, and says what it used.
"""

import json
import sys

from actors.actor_pool import RayExecutor
from embedmill.executor import WorkerSpec
from embedmill.rate_budget import Limits
from embedmill.rate_budget_settings import RedisSettings
from embedmill.rate_limiter import Holder
from embedmill.redis_budget import RedisKeeper
from embedmill.testing.request_sender import RequestSender


class RedisSender(RequestSender):
    """Connects where it runs."""

    def __init__(self, settings, limits, *more):
        super().__init__(RedisKeeper(settings, "shared", limits), limits, *more)


def main():
    port, base_url, tenant, task = sys.argv[1:]
    executor = RayExecutor(object_store_bytes=100 * 2**20, cpus=2)
    uses = sent(executor, int(port), base_url, tenant, json.loads(task), when_ready=say_and_wait)
    executor.close()
    sys.stdout.write(json.dumps(uses))


def say_and_wait():
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def sent(executor, port, base_url, tenant, task, *, when_ready):
    """What the workers of a cluster have sent, all of them together, since they were ready."""
    limits, workers = Limits(**task["limits"]), task["workers"]
    settings = RedisSettings(kind="redis", port=port)
    holder = Holder(tenant=tenant)
    executor.add_pool(
        "send",
        [
            WorkerSpec(RedisSender, (settings, limits, base_url, holder, seed))
            for seed in range(workers)
        ],
    )
    run(executor, workers, "ready")
    when_ready()
    uses = run(executor, workers, "send", task["seconds"], tuple(task["words"]))
    return {count: sum(getattr(use, count) for use in uses) for count in ("tokens", "throttled")}


def run(executor, workers, method, *arguments):
    for worker in range(workers):
        executor.submit("send", worker, method, *arguments)
    values = []
    while len(values) < workers:
        for done in executor.wait(60):
            if done.error is not None:
                raise done.error
            values.append(done.value)
    return values


if __name__ == "__main__":
    main()
