"""Fake providers and embedders on them, one interface for all of their tests."""

from typing import ClassVar

import numpy as np

from embedmill.cohere_settings import CohereEmbedderSettings, cohere_recipe
from embedmill.compatible_settings import CompatibleEmbedderSettings, compatible_recipe
from embedmill.embedders.cohere import cohere_embedder
from embedmill.embedders.openai import compatible_embedder, openai_embedder
from embedmill.embedders.remote import Waiting
from embedmill.embedders.voyage import voyage_embedder
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.rate_assembly import limiter_of
from embedmill.testing import cohere_server, openai_server, voyage_server
from embedmill.testing.fake_vectors import vectors_for
from embedmill.vector_encoding import normalised
from embedmill.voyage_settings import VoyageEmbedderSettings, voyage_recipe


class RemoteRig:
    """A server with planned faults, and embedders whose waits take no time.

    Attributes:
        route: of embeddings, as the fault plan calls it.
        base: settings without which nothing works.
        model: of the settings.
        dimension: of the vectors.
    """

    route = "embeddings"
    model = "text-embedding-3-small"
    dimension = 256
    path = "/v1/embeddings"
    key = "${FAKE_REMOTE_KEY}"

    def __init__(self, *deeds, **options):
        module = self.module
        faults = [module.Fault(at=self.route, **deed) for deed in deeds]
        self.slept = []
        options = module.ServerOptions(clock=lambda: sum(self.slept), **options)
        self.server = self.server_type(faults, options=options)
        self.opened = []

    def settings(self, **more):
        values = {
            "model": self.model,
            "base_url": self.server.base_url,
            "api_key": self.key,
            "requests_at_a_time": 1,
            **self.base,
            **more,
        }
        return self.settings_type.model_validate(values)

    def embedder(self, *, patience_s=600.0, **more):
        settings = self.settings(**more)
        waiting = Waiting(patience_s, sleep=self.slept.append)
        recipe = type(self).recipe_of(settings, "cosine")
        limiter = limiter_of(settings, clock=lambda: sum(self.slept), sleep=self.slept.append)
        embedder = type(self).build(settings, recipe, limiter, waiting)
        self.opened.append(embedder)
        return embedder

    def expected(self, texts, role="document"):
        return normalised(vectors_for(texts, self.model, self.dimension, self.told(role)))

    def told(self, role):
        return ""

    def posts(self):
        return self.server.requests.count(("POST", self.path))

    def close(self):
        for embedder in self.opened:
            embedder.close()
        self.server.__exit__(None, None, None)


class OpenAIRig(RemoteRig):
    module, server_type = openai_server, openai_server.OpenAIServer
    settings_type, recipe_of, build = OpenAIEmbedderSettings, openai_recipe, openai_embedder
    base: ClassVar = {"kind": "openai", "dimensions": 256, "tokenizer": "estimate"}

    def expected(self, texts, role="document"):
        return vectors_for(texts, self.model, self.dimension)


class CompatibleRig(OpenAIRig):
    settings_type, recipe_of = CompatibleEmbedderSettings, compatible_recipe
    build = compatible_embedder
    base: ClassVar = {
        "kind": "openai_compatible",
        "dimensions": 1536,
        "max_tokens": 512,
        "document_prompt": "passage: ",
        "query_prompt": "query: ",
    }
    model = "some-model"
    dimension = 1536

    def expected(self, texts, role="document"):
        prompt = {"document": "passage: ", "query": "query: "}[role]
        return super().expected([prompt + text for text in texts])


class VoyageRig(RemoteRig):
    module, server_type = voyage_server, voyage_server.VoyageServer
    settings_type, recipe_of, build = VoyageEmbedderSettings, voyage_recipe, voyage_embedder
    base: ClassVar = {"kind": "voyage", "dimensions": 256, "max_tokens": 512}
    model = "voyage-4"

    def told(self, role):
        return role

    def expected(self, texts, role="document"):
        return vectors_for(texts, self.model, self.dimension, role)


class CohereRig(RemoteRig):
    module, server_type = cohere_server, cohere_server.CohereServer
    settings_type, recipe_of, build = CohereEmbedderSettings, cohere_recipe, cohere_embedder
    base: ClassVar = {"kind": "cohere", "dimensions": 256, "max_tokens": 512}
    model = "embed-v4.0"
    route = "embed"
    path = "/v2/embed"

    def told(self, role):
        return f"search_{role}"


RIGS = {
    "openai": OpenAIRig,
    "openai_compatible": CompatibleRig,
    "voyage": VoyageRig,
    "cohere": CohereRig,
}


def close_to(left, right):
    """Equal but for the last bit, which dividing by a norm may change."""
    return np.allclose(left, right, atol=1e-6)
