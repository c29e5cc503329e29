"""Settings in, a recipe or a live chunker out."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import assert_never

from embedmill.chunker import Chunker
from embedmill.embedders.build import token_window
from embedmill.errors import SettingsError
from embedmill.recipe import ChunkingRecipe
from embedmill.settings import (
    ChunkerSettings,
    DocumentChunkerSettings,
    EmbedderSettings,
    SplittingChunkerSettings,
)
from embedmill.tokenizer import TokenWindow

# Of our own code around the library; a change that moves a border raises it.
_SPLITTER_VERSION = 1
# Our own splitter, in the place of the library; a change that moves a border raises its number.
OWN_SPLITTER = "token borders 1"
_FALLBACK = re.compile(r" fallback-\S+")


def build_chunker(
    chunker: ChunkerSettings,
    embedder: EmbedderSettings,
    parser_fingerprint: str,
    existing: ChunkingRecipe | None = None,
) -> Chunker:
    """A chunker that counts in the tokens of the embedder's model; no model is loaded.

    Args:
        chunker: what is asked for.
        embedder: whose tokens count.
        parser_fingerprint: of the parsers.
        existing: of the index version that is continued; it decides what the settings leave open.

    Raises:
        SettingsError: the settings ask for chunks that the model's window does not take.
        RefusedError: the model's files are nowhere to be found.
    """
    window = token_window(embedder)
    recipe = chunking_recipe(chunker, window, parser_fingerprint)
    if existing is not None:
        recipe = adopted_chunking(chunker, existing, recipe)
    match chunker:
        case DocumentChunkerSettings():
            from embedmill.chunkers.document import DocumentChunker

            return DocumentChunker(recipe, window)
        case SplittingChunkerSettings() if recipe.library == OWN_SPLITTER:
            from embedmill.chunkers.token_borders import TokenBorderChunker

            return TokenBorderChunker(recipe, window)
        case SplittingChunkerSettings():
            from embedmill.chunkers.splitting import SplittingChunker

            return SplittingChunker(recipe, window)
        case _:
            assert_never(chunker)


def chunking_recipe(
    chunker: ChunkerSettings, window: TokenWindow, parser_fingerprint: str
) -> ChunkingRecipe:
    """All that decides the chunks.

    Raises:
        SettingsError: ``max_tokens`` is above what the window leaves and is not to be truncated,
            or the overlap is not below it.
    """
    usable = _usable(window)
    match chunker:
        case DocumentChunkerSettings():
            library, max_tokens, overlap = "", usable, 0
        case SplittingChunkerSettings():
            library = _library(chunker)
            max_tokens, overlap = chunker.max_tokens or usable, chunker.overlap
            _check(chunker, max_tokens, window, usable)
        case _:
            assert_never(chunker)
    return ChunkingRecipe(
        splitter=chunker.kind,
        splitter_version=_SPLITTER_VERSION,
        library=library,
        tokenizer=window.counter.fingerprint,
        max_tokens=max_tokens,
        overlap=overlap,
        overflow=chunker.overflow,
        parser=parser_fingerprint,
    )


def adopted_chunking(
    chunker: ChunkerSettings, existing: ChunkingRecipe, wanted: ChunkingRecipe
) -> ChunkingRecipe:
    """What is wanted, with what an existing index has where the settings leave it open.

    Its splitter only when nothing else differs: an index that is chunked anew anyway gets the
    better one.
    """
    # Recipes of before named the fallback encoding, which is part of a document's fingerprint now.
    if _FALLBACK.sub("", existing.parser) == wanted.parser:
        wanted = replace(wanted, parser=existing.parser)
    if isinstance(chunker, DocumentChunkerSettings) or chunker.splitter != "auto":
        return wanted
    kept = replace(wanted, library=_semantic_library(chunker))
    return kept if kept == existing else wanted


def _library(chunker: SplittingChunkerSettings) -> str:
    return _semantic_library(chunker) if chunker.splitter == "semantic" else OWN_SPLITTER


def _semantic_library(chunker: SplittingChunkerSettings) -> str:
    from embedmill.chunkers.library import LIBRARY, PYTHON_GRAMMAR

    return f"{LIBRARY}, {PYTHON_GRAMMAR}" if chunker.kind in {"auto", "code"} else LIBRARY


def _usable(window: TokenWindow) -> int:
    overhead = window.overhead
    if overhead >= window.size:
        raise SettingsError(
            f"the document prompt and the special tokens take {overhead} tokens of the model's "
            f"window of {window.size}: nothing is left for text",
            hint="shorten embedder.document_prompt",
        )
    return window.size - overhead


def _check(
    chunker: SplittingChunkerSettings, max_tokens: int, window: TokenWindow, usable: int
) -> None:
    if max_tokens > usable and chunker.overflow == "refuse":
        raise SettingsError(
            f"chunker.max_tokens is {max_tokens}, but the model's window of {window.size} leaves "
            f"{usable}: special tokens and the document prompt take {window.size - usable}",
            hint=f"leave chunker.max_tokens out or set it to {usable} at most; or set "
            "chunker.overflow to truncate, and the model sees the beginning of longer chunks only",
        )
    if chunker.overlap >= max_tokens:
        raise SettingsError(
            f"chunker.overlap is {chunker.overlap}, but a chunk has {max_tokens} tokens at most",
            hint="set chunker.overlap below chunker.max_tokens",
        )
