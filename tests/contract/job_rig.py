"""The providers of embedding jobs at their fake servers, for one suite over all of them."""

from datetime import UTC, datetime

from embedmill.batch_providers.cohere import Pace
from embedmill.batch_providers.cohere_batches import batch_provider
from embedmill.batch_providers.cohere_embed_jobs import embed_job_provider
from embedmill.batch_providers.cohere_limits import DatasetTemplate, batch_template
from embedmill.batch_providers.openai import OpenAIBatchProvider
from embedmill.batch_providers.openai_limits import limits_of, request_template
from embedmill.batch_providers.voyage import voyage_provider
from embedmill.batch_providers.voyage_limits import VOYAGE_TEMPLATE
from embedmill.cohere_settings import CohereEmbedderSettings, cohere_recipe
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.testing import cohere_server, openai_server, voyage_server
from embedmill.testing.fake_batch_provider import HandClock
from embedmill.testing.fake_vectors import vectors_for
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.vector_encoding import normalised
from embedmill.voyage_settings import VoyageEmbedderSettings, voyage_recipe

PROVIDERS = ("openai", "voyage", "cohere", "cohere_batches")
KEY = "FAKE_PROVIDER_KEY"
SERVERS = {
    "openai": (openai_server.OpenAIServer, openai_server.ServerOptions, openai_server.Fault),
    "voyage": (voyage_server.VoyageServer, voyage_server.ServerOptions, voyage_server.Fault),
    "cohere": (cohere_server.CohereServer, cohere_server.ServerOptions, cohere_server.Fault),
    "cohere_batches": (
        cohere_server.CohereServer,
        cohere_server.ServerOptions,
        cohere_server.Fault,
    ),
}


class ServedProvider:
    """A provider of jobs, and what its fake server knows."""

    def __init__(self, name, server, clock, **settings):
        self.name = name
        self.server = server
        self.clock = clock
        self.recipe, self._provider = _built(name, server, clock, settings)
        self.limits = self._provider.limits
        self.texts = set()

    def __getattr__(self, method):
        return getattr(self._provider, method)

    def embed(self, texts, role):
        raise AssertionError("nothing goes the direct way here")

    def model_of(self, texts):
        self.texts.update(texts)
        vectors = vectors_for(
            texts, self.recipe.model, self.recipe.dimension, self.recipe.document_input_type
        )
        return normalised(vectors) if self.name.startswith("cohere") else vectors

    def charged_twice(self):
        times = {text: self.server.bill.times(text) for text in self.texts}
        return {text: count for text, count in times.items() if count > 1}


def _built(name, server, clock, more):
    values = {"api_key": f"${{{KEY}}}", "base_url": server.base_url, "timeout_s": 20}
    sleep = clock.sleep
    if name == "openai":
        settings = OpenAIEmbedderSettings(
            kind="openai", dimensions=16, tokenizer="estimate", **values
        )
        recipe = openai_recipe(settings, "cosine")
        return recipe, OpenAIBatchProvider(
            settings, recipe, limits=limits_of(settings), read_retries=0, sleep=sleep
        )
    if name == "voyage":
        settings = VoyageEmbedderSettings(kind="voyage", **{"dimensions": 256, **values, **more})
        recipe = voyage_recipe(settings, "cosine")
        return recipe, voyage_provider(settings, recipe, read_retries=0, sleep=sleep)
    batches = name == "cohere_batches"
    settings = CohereEmbedderSettings(
        kind="cohere",
        mode="batch",
        jobs_through="batches" if batches else "embed_jobs",
        **{
            "model": "embed-v4.0" if batches else "embed-english-light-v3.0",
            **values,
            **more,
        },
    )
    recipe = cohere_recipe(settings, "cosine")
    build = batch_provider if batches else embed_job_provider
    return recipe, build(settings, recipe, Pace(sleep, lambda: clock().timestamp()))


def template_of(provider):
    if provider.name == "openai":
        return request_template(provider.recipe)
    if provider.name == "cohere_batches":
        return batch_template(provider.recipe)
    return VOYAGE_TEMPLATE if provider.name == "voyage" else DatasetTemplate()


class Rehearsals:
    """Makes rehearsals at fake servers, and ends them all."""

    def __init__(self):
        self._open = []

    def begin(self, name, faults=(), **options):
        kind, made_of, fault_of = SERVERS[name]
        clock = HandClock(datetime(2026, 1, 1, tzinfo=UTC))
        options = made_of(now=lambda: clock().timestamp(), **options)
        server = kind([fault_of(at=at, do=do, **more) for at, do, more in faults], options=options)
        server.__enter__()
        provider = ServedProvider(name, server, clock)
        self._open.append((provider, server))
        return JobRehearsal.at(provider, template_of(provider), clock)

    def serve(self, name, **options):
        """A server alone."""
        kind, made_of, _ = SERVERS[name]
        server = kind(options=made_of(**options))
        server.__enter__()
        self._open.append((None, server))
        return server

    def another(self, provider, settings, name=None):
        """Another recipe, or another way, at the server of a provider."""
        made = ServedProvider(name or provider.name, provider.server, provider.clock, **settings)
        self._open.append((made, None))
        return made

    def end(self):
        for provider, server in self._open:
            if provider is not None:
                provider.close()
            if server is not None:
                server.__exit__(None, None, None)
        self._open.clear()
