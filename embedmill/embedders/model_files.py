"""What the files of a sentence-transformers model say about it, read without torch.

The layout is that of ``SentenceTransformer.save``: ``modules.json`` lists the modules, each with a
``config.json`` in its folder; ``sentence_bert_config.json`` has the window,
``config_sentence_transformers.json`` the prompts. A model without ``modules.json`` is a transformer
with mean pooling, as sentence-transformers has it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from embedmill.embedders.model_location import ModelLocation
from embedmill.errors import SettingsError
from embedmill.settings import SentenceTransformersSettings

# Positions of these start after the padding id, so that a table of 514 holds 512 tokens.
_OFFSET_POSITIONS = {"roberta", "xlm-roberta", "xlm-roberta-xl", "camembert", "mpnet"}
# Names under which models keep the prompt of one role, in the order of sentence-transformers.
_DOCUMENT_PROMPTS = ("document", "passage", "corpus")
_QUERY_PROMPTS = ("query",)
_READ_BYTES = 1 << 20
# How the revision of files begins that have no commit.
WEIGHTS = "weights-"


@dataclass(frozen=True, slots=True)
class ModelDescription:
    """A model as its files and the settings describe it.

    Attributes:
        location: where the files are.
        dimension: of a vector.
        computed_dimension: of a vector before it is cut to ``dimension``.
        modules: class name and folder of each module, in order.
        pad_id: what stands for no token.
        vocabulary: every id is below it; 0 where the model does not say.
        window: tokens that the model reads, special tokens and prompt included.
        document_prompt: put before documents.
        query_prompt: put before queries.
        normalises: a module of the model brings vectors to norm 1.
        similarity: that the model states (``cosine``, ``dot``, ...); empty when it states none.
    """

    location: ModelLocation
    dimension: int
    computed_dimension: int
    modules: tuple[tuple[str, Path], ...]
    pad_id: int
    vocabulary: int
    window: int
    document_prompt: str
    query_prompt: str
    normalises: bool
    similarity: str


def describe_model(
    location: ModelLocation, settings: SentenceTransformersSettings
) -> ModelDescription:
    """Read the small files of a model; the weights are not opened.

    Raises:
        SettingsError: the directory holds no text model, or the settings ask for what the model
            does not have; the message has both values.
    """
    directory = location.directory
    if not (directory / "tokenizer.json").is_file():
        raise SettingsError(
            f"embedder.model: {location.name!r} has no tokenizer.json",
            hint="save the model with a fast tokenizer",
        )
    modules = _modules(directory)
    stated = _record(directory / "config_sentence_transformers.json")
    dimension = _dimension(directory, modules)
    if (settings.dimension or 0) > dimension:
        raise SettingsError(
            f"embedder.dimension: {settings.dimension}, but {location.name!r} makes vectors of "
            f"{dimension}"
        )
    kept = settings.dimension or stated.get("truncate_dim") or dimension
    config = _record(directory / "config.json")
    return ModelDescription(
        location=location,
        dimension=min(dimension, kept),
        computed_dimension=dimension,
        modules=tuple(modules),
        pad_id=config.get("pad_token_id") or 0,
        vocabulary=config.get("vocab_size") or 0,
        window=_window(location, settings.max_tokens),
        document_prompt=_prompt(stated, settings.document_prompt, "document_prompt"),
        query_prompt=_prompt(stated, settings.query_prompt, "query_prompt"),
        normalises=any(kind == "Normalize" for kind, _ in modules),
        similarity=stated.get("similarity_fn_name") or "",
    )


def model_revision(location: ModelLocation) -> str:
    """The hub's commit, or ``weights-`` with a digest of all files that decide a vector.

    Reads the weights whole: 0.1 s for the 90 MB of MiniLM.
    """
    if location.commit:
        return location.commit
    digest = blake2b(digest_size=8)
    for path in sorted(_deciding_files(location.directory)):
        name = path.relative_to(location.directory).as_posix()
        digest.update(f"{name}:{path.stat().st_size}:".encode())
        with path.open("rb") as stream:
            while block := stream.read(_READ_BYTES):
                digest.update(block)
    return f"{WEIGHTS}{digest.hexdigest()}"


def _deciding_files(directory: Path) -> Iterator[Path]:
    folders = [directory, *(folder for _, folder in _modules(directory) if folder != directory)]
    for folder in folders:
        weights = list(folder.glob("*.safetensors")) or list(folder.glob("pytorch_model*.bin"))
        yield from weights
        configs = ("config.json", "modules.json", "sentence_bert_config.json", "tokenizer.json")
        yield from (path for name in configs if (path := folder / name).is_file())


def _modules(directory: Path) -> list[tuple[str, Path]]:
    """Class name and folder of each module, in order."""
    path = directory / "modules.json"
    if not path.is_file():
        return [("Transformer", directory), ("Pooling", directory / "1_Pooling")]
    found: list[dict[str, str]] = orjson.loads(path.read_bytes())
    return [(each["type"].rsplit(".", 1)[-1], directory / each["path"]) for each in found]


def _record(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    record: dict[str, Any] = orjson.loads(path.read_bytes())
    return record


def _dimension(directory: Path, modules: list[tuple[str, Path]]) -> int:
    """Follow the modules: pooling multiplies by its modes, a dense layer says its own."""
    model = _record(directory / "config.json")
    dimension = model.get("hidden_size") or model.get("d_model") or model.get("n_embd") or 0
    for kind, folder in modules:
        config = _record(folder / "config.json")
        if kind == "Pooling" and config:
            each = config.get("embedding_dimension") or config.get("word_embedding_dimension")
            dimension = (each or dimension) * _pooling_modes(config)
        elif kind == "Dense":
            dimension = config.get("out_features") or dimension
    if not dimension:
        raise SettingsError(
            f"embedder.model: {directory.name!r} is no text model: its config.json has no "
            "hidden_size"
        )
    return int(dimension)


def _pooling_modes(config: Mapping[str, Any]) -> int:
    mode = config.get("pooling_mode")
    if isinstance(mode, list):
        return len(mode)
    # Older files have a flag for each: pooling_mode_cls_token, pooling_mode_mean_tokens, ...
    flags = [on for key, on in config.items() if key.startswith("pooling_mode_")]
    return max(1, sum(map(bool, flags)))


def _window(location: ModelLocation, wanted: int | None) -> int:
    """The smallest of the limits that module, tokenizer and position table set."""
    directory = location.directory
    model = _record(directory / "config.json")
    positions = model.get("max_position_embeddings")
    if positions and model.get("model_type") in _OFFSET_POSITIONS:
        positions -= model.get("pad_token_id", 1) + 1
    limits = [
        _record(directory / "sentence_bert_config.json").get("max_seq_length"),
        _record(directory / "tokenizer_config.json").get("model_max_length"),
        positions,
    ]
    # Tokenizers without a limit write 1e30 or so; relative positions are written as -1.
    own = min((int(each) for each in limits if each and 0 < each < 1e9), default=0)
    if not own:
        raise SettingsError(f"embedder.model: {location.name!r} does not state its window")
    if wanted is not None and wanted > own:
        raise SettingsError(
            f"embedder.max_tokens is {wanted}, but the window of {location.name!r} is {own}",
            hint=f"leave embedder.max_tokens out, or set it to {own} at most",
        )
    return wanted or own


def _prompt(stated: Mapping[str, Any], given: str | None, key: str) -> str:
    """What the settings give, else what the model prescribes for the role, else its default."""
    if given is not None:
        return given
    prompts: dict[str, str] = stated.get("prompts") or {}
    default = stated.get("default_prompt_name")
    if default is not None and default not in prompts:
        raise SettingsError(
            f"embedder.model: its default_prompt_name is {default!r}, but its prompts are "
            f"{sorted(prompts)}",
            hint=f"set embedder.{key}",
        )
    names = _DOCUMENT_PROMPTS if key == "document_prompt" else _QUERY_PROMPTS
    found = next((prompts[name] for name in (*names, default) if name in prompts), "")
    if re.search(r"\{\w*\}", found):
        raise SettingsError(
            f"embedder.model: its prompt {found!r} has a slot to fill",
            hint=f"set embedder.{key} to the words that are to stand before every text",
        )
    return found
