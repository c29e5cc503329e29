"""The splitting library: text, Markdown and Python, each by its own structure."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Literal, assert_never

import tree_sitter_python
from semantic_text_splitter import CodeSplitter, MarkdownSplitter, TextSplitter
from tokenizers import Tokenizer

# What a text is split as; code in other languages than Python is split as text.
Structure = Literal["text", "markdown", "python"]
Splitter = TextSplitter | MarkdownSplitter | CodeSplitter

PYTHON_GRAMMAR = f"tree-sitter-python {version('tree-sitter-python')}"
LIBRARY = f"semantic-text-splitter {version('semantic-text-splitter')}"


def new_splitter(
    structure: Structure,
    sizer: Tokenizer | Callable[[str], int],
    capacity: int,
    overlap: int,
) -> Splitter:
    """A splitter for chunks of ``capacity`` tokens as ``sizer`` counts them."""
    if isinstance(sizer, Tokenizer):
        match structure:
            case "text":
                return TextSplitter.from_huggingface_tokenizer(sizer, capacity, overlap)
            case "markdown":
                return MarkdownSplitter.from_huggingface_tokenizer(sizer, capacity, overlap)
            case "python":
                grammar = tree_sitter_python.language()
                return CodeSplitter.from_huggingface_tokenizer(grammar, sizer, capacity, overlap)
            case _:
                assert_never(structure)
    match structure:
        case "text":
            return TextSplitter.from_callback(sizer, capacity, overlap)
        case "markdown":
            return MarkdownSplitter.from_callback(sizer, capacity, overlap)
        case "python":
            return CodeSplitter.from_callback(
                tree_sitter_python.language(), sizer, capacity, overlap
            )
        case _:
            assert_never(structure)
