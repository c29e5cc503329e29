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


def sender(port, base_url, tenant, limits, seed):
    """Built in the worker: no client travels."""
    keeper = RedisKeeper(RedisSettings(kind="redis", port=port), "shared", limits)
    return RequestSender(keeper, limits, base_url, Holder(tenant=tenant), seed)


def main():
    port, base_url, tenant, task = sys.argv[1:]
    task = json.loads(task)
    limits, workers = Limits(**task["limits"]), task["workers"]
    executor = RayExecutor(object_store_bytes=100 * 2**20, cpus=2)
    executor.add_pool(
        "send",
        [
            WorkerSpec(sender, (int(port), base_url, tenant, limits, seed))
            for seed in range(workers)
        ],
    )
    run(executor, workers, "ready")
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    uses = run(executor, workers, "send", task["seconds"], tuple(task["words"]))
    executor.close()
    said = {count: sum(getattr(use, count) for use in uses) for count in ("tokens", "throttled")}
    sys.stdout.write(json.dumps(said))


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
