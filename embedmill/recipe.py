"""Recipes: the settings that decide an output, with a fingerprint of their own."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from typing import Any, Literal, Self

import orjson

Metric = Literal["cosine", "dot", "euclid"]
_LATER = ("document_input_type", "query_input_type")


def fingerprint_of(value: object) -> str:
    """12 hexadecimal digits of blake2b over canonical JSON (sorted keys) of ``value``."""
    canonical = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    return blake2b(canonical, digest_size=6).hexdigest()


def _slug(name: str, limit: int = 32) -> str:
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return words[:limit].strip("-") or "model"


@dataclass(frozen=True, slots=True)
class ChunkingRecipe:
    """All that decides the chunks of a document: parser, splitter, tokenizer, limits.

    Attributes:
        splitter: kind of chunker (``auto``, ``text``, ``markdown``, ``code``, ``document``).
        splitter_version: of our own code around the splitting library.
        library: the splitting library with its version; cuts may move with it.
        tokenizer: fingerprint of the tokenizer that counts.
        max_tokens: of one chunk, special tokens and document prompt not included.
        overlap: tokens shared by neighbours.
        overflow: ``refuse`` or ``truncate`` for a whole document over the window.
        parser: fingerprint of the parsers' versions and options.
    """

    splitter: str
    splitter_version: int
    library: str
    tokenizer: str
    max_tokens: int
    overlap: int
    overflow: str
    parser: str

    @property
    def fingerprint(self) -> str:
        """Equal for equal recipes, on every machine."""
        return fingerprint_of(asdict(self))

    @property
    def id(self) -> str:
        """Short readable name with the fingerprint: ``markdown-254-32-3f9a1c02d4e5``."""
        return f"{_slug(self.splitter, 12)}-{self.max_tokens}-{self.overlap}-{self.fingerprint}"

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Read what :func:`dataclasses.asdict` wrote."""
        return cls(**{f.name: record[f.name] for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class EmbeddingRecipe:
    """All that decides a vector: change any of it and the vectors are other vectors.

    Attributes:
        provider: kind of embedder (``sentence_transformers``, ``hashing``, ``openai``).
        model: name as the user gave it, without local directories.
        revision: resolved, never a floating name: commit of the hub or digest of the weights.
        dimension: of a vector.
        dtype: the numeric type of the computation (``float32``, ``bfloat16``, ``float16``).
        normalise: whether vectors have norm 1.
        document_prompt: put before every document text.
        query_prompt: put before every query text.
        max_tokens: window of the model in its own tokens, special tokens included.
        metric: how vectors are to be compared.
        document_input_type: what a provider is told that a document is; it puts a prompt of its own
            before it.
        query_input_type: the same for queries.
    """

    provider: str
    model: str
    revision: str
    dimension: int
    dtype: str
    normalise: bool
    document_prompt: str
    query_prompt: str
    max_tokens: int
    metric: Metric
    document_input_type: str = ""
    query_input_type: str = ""

    def input_type(self, role: Literal["document", "query"]) -> str:
        """What a provider is told that a text in this role is; empty: nothing."""
        return self.document_input_type if role == "document" else self.query_input_type

    @property
    def fingerprint(self) -> str:
        """Equal for equal recipes, on every machine."""
        # Input types came later: an embedder without any keeps the fingerprint that it had.
        record = {key: value for key, value in asdict(self).items() if key not in _LATER or value}
        return fingerprint_of(record)

    @property
    def id(self) -> str:
        """Short readable name with the fingerprint: ``all-minilm-l6-v2-384-9be2d0aa41c7``."""
        return f"{_slug(self.model.rsplit('/', 1)[-1])}-{self.dimension}-{self.fingerprint}"

    @classmethod
    def from_json(cls, record: dict[str, Any]) -> Self:
        """Read what :func:`dataclasses.asdict` wrote, now or before there were input types."""
        values = {f.name: record[f.name] for f in fields(cls) if f.name not in _LATER}
        return cls(**values, **{name: record.get(name, "") for name in _LATER})


def differences(
    old: ChunkingRecipe | EmbeddingRecipe, new: ChunkingRecipe | EmbeddingRecipe
) -> list[str]:
    """One line per attribute that differs: ``dtype: 'float32' -> 'bfloat16'``."""
    before, after = asdict(old), asdict(new)
    return [
        f"{key}: {before[key]!r} -> {after.get(key)!r}"
        for key in before
        if before[key] != after.get(key)
    ]
