"""The fake OpenAI server, and what talks to it."""

from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

pytest.importorskip("openai")
pytest.importorskip("msgspec")

from embedmill.batch_providers.openai import OpenAIBatchProvider
from embedmill.batch_providers.openai_limits import OPENAI_LIMITS, limits_of, request_template
from embedmill.embedders.openai import openai_embedder
from embedmill.embedders.remote import Waiting
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.outcome_check import OutcomeCheck
from embedmill.rate_assembly import limiter_of
from embedmill.request_file import RequestWriter
from embedmill.testing.fake_vectors import vectors_for
from embedmill.testing.openai_server import OpenAIServer, ServerOptions

DIMENSION = 16
MODEL = "text-embedding-3-small"


class Rig:
    """A server with planned faults, and clients of it whose sleeps take no time."""

    def __init__(self, folder, server):
        self.folder = folder
        self.server = server
        self.slept = []
        self.clients = []

    def clock(self):
        return sum(self.slept)

    def settings(self, **more):
        values = {
            "kind": "openai",
            "model": MODEL,
            "dimensions": DIMENSION,
            "api_key": "${FAKE_OPENAI_KEY}",
            "base_url": self.server.base_url,
            "tokenizer": "estimate",
            "requests_at_a_time": 1,
            **more,
        }
        return OpenAIEmbedderSettings.model_validate(values)

    def provider(self, *, read_retries=0, limits=None, **more):
        settings = self.settings(**more)
        provider = OpenAIBatchProvider(
            settings,
            openai_recipe(settings, "cosine"),
            limits=limits or limits_of(settings),
            read_retries=read_retries,
            sleep=self.slept.append,
        )
        self.clients.append(provider)
        return provider

    def embedder(self, *, patience_s=600.0, **more):
        settings = self.settings(**more)
        waiting = Waiting(patience_s, sleep=self.slept.append)
        limiter = limiter_of(settings, clock=self.clock, sleep=self.slept.append)
        recipe = openai_recipe(settings, "cosine")
        embedder = openai_embedder(settings, recipe, limiter, waiting)
        self.clients.append(embedder)
        return embedder

    def requests(self, texts, *, key="job-1", **more):
        """A file of requests: texts, or lists of texts, by custom id."""
        settings = self.settings(**more)
        template = request_template(openai_recipe(settings, "cosine"))
        path = self.folder / f"{key}.jsonl"
        with RequestWriter(path, job_key=key, template=template, limits=OPENAI_LIMITS) as writer:
            for custom_id, sent in texts.items():
                group = [sent] if isinstance(sent, str) else sent
                assert writer.add(custom_id, group, [5] * len(group))
            return writer.finish()

    def submit(self, provider, texts, key="job-1", **more):
        file = self.requests(texts, key=key)
        return provider.submit(file, job_key=key, fingerprint=file.fingerprint, **more)

    def finished(self, provider, texts, key="job-1"):
        """A job that has reached its end."""
        job = self.submit(provider, texts, key)
        for _ in range(20):
            if provider.state(job).terminal:
                return job
        raise AssertionError("the job does not end")


class Read:
    """The outcomes of a job, compared with what was sent."""

    def __init__(self, provider, job, texts):
        sent = {key: [group] if isinstance(group, str) else group for key, group in texts.items()}
        self.check = OutcomeCheck({key: len(group) for key, group in sent.items()})
        self.outcomes = list(provider.outcomes(job))
        self.good = {}
        self.failed = {}
        self.tokens = sum(outcome.tokens for outcome in self.outcomes)
        for outcome in self.outcomes:
            self.check.see(outcome)
            place = (outcome.custom_id, outcome.index)
            if outcome.failure:
                self.failed[place] = (outcome.failure.kind, outcome.failure.code)
            elif outcome.custom_id in sent:
                self.good[place] = outcome.vector
                text = sent[outcome.custom_id][outcome.index]
                assert np.array_equal(outcome.vector, vectors_for([text], MODEL, DIMENSION)[0])
        self.anomalies = dict(self.check.anomalies)
        self.missing = list(self.check.missing())
        self.kinds = Counter(self.failed.values())


@pytest.fixture
def rig(tmp_path, monkeypatch):
    """Makes a rig; the server serves until the end of the test."""
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-of-the-fake-server")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = []

    def make(*faults, **options):
        server = OpenAIServer(faults, options=ServerOptions(**options))
        server.__enter__()
        made.append(Rig(tmp_path, server))
        return made[-1]

    yield make
    for one in made:
        for client in one.clients:
            client.close()
        one.server.__exit__(None, None, None)


@pytest.fixture
def read():
    return Read


@pytest.fixture
def long_ago():
    return datetime(2026, 1, 1, tzinfo=UTC)
