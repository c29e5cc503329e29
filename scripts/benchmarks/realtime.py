"""How busy the realtime path keeps a provider, and what a vector costs the client.

A fake OpenAI server in a process of its own begins every reply when a given latency has passed
since the request arrived, out of replies that it made once. In turn, with as many requests at a
time: the product's embedder, from texts to checked float32 rows, called for one segment after the
other by as many threads as a worker of a run has; the official client's own call, from
texts to what it returns (lists of floats, unchecked); and, to show what server and connection
leave for any client, one that only sends a request that was written before and reads the bytes of
the reply. What a worker does beside (reading chunks, storing vectors) is not in it.

Two limits. The product makes 90 % of the requests that fit (requests at a time / latency), unless
the processors are the limit: then it says so, and which. And a vector costs it less processor
time than the official client. With other work on the machine there is no verdict, and the exit
status is 3.

What a request takes beside the latency is printed for each client: sending it, noticing that the
reply begins and sending the next one; the client of bytes alone has to read the reply as well, in
the same place, while the product reads in others. For none of them is the limit lowered by it.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import openai
import orjson
import psutil

from benchmarks.figures import no_verdict, spread, verdict
from benchmarks.ingesting import add_maximum_others
from embedmill.embedders.openai import openai_embedder
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.rate_assembly import own_limiter
from pipelines.pools import segments_at_a_time

MODEL = "text-embedding-3-small"
KEY = "EMBEDMILL_BENCH_KEY"
PRODUCT, OFFICIAL, BARE = "embedmill", "official client", "bytes alone"
# Of a core, or of all of them: from here on the processors are the limit.
SATURATED = 0.9
# About 250 tokens.
TEXT = "The lighthouse keeper wrote down the height of the tide every morning, number {0}. " * 12


@dataclass(frozen=True, slots=True)
class Round:
    """One client, measured once.

    Attributes:
        rate: requests per second.
        cpu_per_vector: seconds of this process.
        own_cores: that this process used.
        busy_cores: that the whole machine used.
        other_cores: that neither this process nor the server used.
    """

    rate: float
    cpu_per_vector: float
    own_cores: float
    busy_cores: float
    other_cores: float


def main() -> int:
    """Measure as the command line says."""
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--at-a-time", type=int, default=4, help="requests (default %(default)s)")
    made.add_argument("--latency", type=float, default=0.05, help="seconds (default %(default)s)")
    made.add_argument("--inputs", type=int, default=256, help="of a request (default %(default)s)")
    made.add_argument(
        "--segment", type=int, default=512, help="chunks of a segment (default %(default)s)"
    )
    made.add_argument("--requests", type=int, default=256, help="of a round (default %(default)s)")
    made.add_argument("--rounds", type=int, default=5, help="of each (default %(default)s)")
    add_maximum_others(made)
    options = made.parse_args()
    os.environ.setdefault(KEY, "no-secret")
    os.environ["NO_PROXY"] = "127.0.0.1"
    with served(options.latency) as (server, address):
        return judged(options, measure(options, server, address))


@contextlib.contextmanager
def served(latency: float) -> Iterator[tuple[psutil.Process, str]]:
    """The fake server, in a process of its own: process and base URL."""
    with tempfile.TemporaryDirectory(prefix="bench-realtime-") as folder:
        plan = Path(folder, "plan.yaml")
        plan.write_text(f"- {{at: embeddings, do: slow-reply, times: 0, seconds: {latency}}}\n")
        command = [sys.executable, "-m", "embedmill.testing.openai_server", "--canned"]
        with subprocess.Popen(  # noqa: S603 (ours)
            [*command, "--faults", str(plan)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            try:
                yield psutil.Process(child.pid), child.stdout.readline().strip()
            finally:
                child.terminate()


def measure(
    options: argparse.Namespace, server: psutil.Process, address: str
) -> dict[str, list[Round]]:
    """Rounds of each client, in turn."""
    texts = [TEXT.format(number) for number in range(options.inputs * options.requests)]
    calls = {
        PRODUCT: product_call(options, address),
        OFFICIAL: official_call(options, address),
        BARE: bare_call(options, address),
    }
    rounds: dict[str, list[Round]] = {name: [] for name in calls}
    for call in calls.values():
        call(texts[: 2 * options.inputs])
    for _ in range(options.rounds):
        for name, call in calls.items():
            rounds[name].append(one_round(options, server, call, texts))
    return rounds


def product_call(options: argparse.Namespace, address: str) -> Callable[[Sequence[str]], None]:
    """The embedder, from texts to checked rows, a segment a call."""
    settings = OpenAIEmbedderSettings.model_validate(
        {
            "kind": "openai",
            "model": MODEL,
            "base_url": address,
            "api_key": f"${{{KEY}}}",
            "tokenizer": "estimate",
            "inputs_per_request": options.inputs,
            "requests_at_a_time": options.at_a_time,
        }
    )
    recipe = openai_recipe(settings, "cosine")
    embedder = openai_embedder(settings, recipe, own_limiter(settings))
    threads = ThreadPoolExecutor(segments_at_a_time(settings, options.segment))

    def embed(texts: Sequence[str]) -> int:
        return len(texts) - len(embedder.embed(texts, "document").failures)

    def call(texts: Sequence[str]) -> None:
        step = options.segment
        parts = [texts[start : start + step] for start in range(0, len(texts), step)]
        assert sum(threads.map(embed, parts)) == len(texts)

    return call


def official_call(options: argparse.Namespace, address: str) -> Callable[[Sequence[str]], None]:
    """The official client as it comes, in as many threads."""
    client = openai.OpenAI(api_key="no-secret", base_url=address, max_retries=0)
    threads = ThreadPoolExecutor(options.at_a_time)

    def ask(texts: Sequence[str]) -> int:
        return len(client.embeddings.create(model=MODEL, input=list(texts)).data)

    def call(texts: Sequence[str]) -> None:
        step = options.inputs
        parts = [texts[start : start + step] for start in range(0, len(texts), step)]
        assert sum(threads.map(ask, parts)) == len(texts)

    return call


def bare_call(options: argparse.Namespace, address: str) -> Callable[[Sequence[str]], None]:
    """Nothing but bytes out and bytes in, in as many threads."""
    server = urlsplit(address)
    local = threading.local()
    threads = ThreadPoolExecutor(options.at_a_time)
    headers = {"authorization": "Bearer no-secret", "content-type": "application/json"}

    def ask(content: bytes) -> int:
        if not hasattr(local, "connection"):
            local.connection = HTTPConnection(server.hostname or "", server.port)
        local.connection.request("POST", f"{server.path}/embeddings", content, headers)
        return len(local.connection.getresponse().read())

    def call(texts: Sequence[str]) -> None:
        body = {"model": MODEL, "encoding_format": "base64", "input": texts[: options.inputs]}
        content = orjson.dumps(body)
        assert all(threads.map(ask, [content] * (len(texts) // options.inputs)))

    return call


def one_round(
    options: argparse.Namespace,
    server: psutil.Process,
    call: Callable[[Sequence[str]], None],
    texts: Sequence[str],
) -> Round:
    """Have all texts embedded, and measure."""
    before = _used(server)
    call(texts)
    seconds, own, served_s, machine = (b - a for a, b in zip(before, _used(server), strict=True))
    return Round(
        rate=options.requests / seconds,
        cpu_per_vector=own / len(texts),
        own_cores=own / seconds,
        busy_cores=machine / seconds,
        other_cores=max(0.0, machine - own - served_s) / seconds,
    )


def _used(server: psutil.Process) -> tuple[float, float, float, float]:
    """Wall clock; processor time of this process, of the server, of the whole machine."""
    times, all_times = server.cpu_times(), psutil.cpu_times()
    busy = sum(all_times) - all_times.idle - getattr(all_times, "iowait", 0.0)
    return time.perf_counter(), time.process_time(), times.user + times.system, busy


def judged(options: argparse.Namespace, measured: Mapping[str, Sequence[Round]]) -> int:
    """Print all, and say whether the limits are kept."""
    fitting = options.at_a_time / options.latency
    ours, theirs = measured[PRODUCT], measured[OFFICIAL]
    for name, rounds in measured.items():
        print(f"{name}:")
        print(f"  requests/s      {spread([one.rate for one in rounds], digits=1)}", end="")
        print(f" of {fitting:,.1f} that fit")
        print(
            f"  vectors/s       {spread([one.rate * options.inputs for one in rounds], digits=0)}"
        )
        beside = [1e3 * (options.at_a_time / one.rate - options.latency) for one in rounds]
        print(f"  beside latency  {spread(beside, 'ms', digits=1)} a request")
        micros = [1e6 * one.cpu_per_vector for one in rounds]
        print(f"  CPU per vector  {spread(micros, 'µs', digits=1)}")
        print(
            f"  cores           {spread([one.own_cores for one in rounds])} of this process", end=""
        )
        print(f", {spread([one.busy_cores for one in rounds])} of the machine")
    share = _share(options, ours)
    own = statistics.median(one.own_cores for one in ours)
    busy = statistics.median(one.busy_cores for one in ours) / (psutil.cpu_count() or 1)
    limit = _limit(share, own, busy, _share(options, measured[BARE]))
    cheaper = statistics.median(one.cpu_per_vector for one in theirs) / statistics.median(
        one.cpu_per_vector for one in ours
    )
    print(f"\nlimit: {limit}\nthe official client costs {cheaper:.1f} times as much CPU per vector")
    others = statistics.median(one.other_cores for one in (*ours, *theirs))
    if others > options.maximum_others:
        return no_verdict(others, options.maximum_others)
    kept = (share >= 0.9 or own >= SATURATED or busy >= SATURATED) and cheaper > 1
    return verdict(
        good=kept, what=f"{share:.0%} of the requests that fit ({limit}), and cheaper than theirs"
    )


def _share(options: argparse.Namespace, rounds: Sequence[Round]) -> float:
    """Of the requests that fit."""
    fitting = options.at_a_time / options.latency
    return float(statistics.median(one.rate for one in rounds) / fitting)


def _limit(share: float, own: float, busy: float, bare: float) -> str:
    """What keeps the rate from being higher."""
    if share >= 0.9:
        return "requests at a time and latency"
    if busy >= SATURATED:
        return f"the processors: {busy:.0%} of all cores, the server's share included"
    if own >= SATURATED:
        return f"the processor: {own:.2f} cores of one Python process"
    if bare < 0.9:
        return f"server and connection: bytes alone make {bare:.0%} as well"
    return f"threads of one Python process that wait for each other, at {own:.2f} cores"


if __name__ == "__main__":
    sys.exit(main())
