"""Texts to token ids, as a model reads them: prompt first, cut at its window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tokenizers import Encoding

from embedmill.embedder import Role
from embedmill.embedders.halving import failures_by_halving
from embedmill.embedders.model_tokenizer import load_tokenizer
from embedmill.errors import PermanentError
from embedmill.recipe import EmbeddingRecipe


class TextEncoder:
    """Tokenises each text once, all texts of a call together, on every core."""

    def __init__(self, directory: Path, recipe: EmbeddingRecipe) -> None:
        self._prompts: dict[Role, str] = {
            "document": recipe.document_prompt,
            "query": recipe.query_prompt,
        }
        self._tokenizer = load_tokenizer(directory)
        self._tokenizer.enable_truncation(recipe.max_tokens)

    def encode(
        self, texts: Sequence[str], role: Role
    ) -> tuple[dict[int, Encoding], dict[int, PermanentError]]:
        """Return encodings and failures; each row is in one of the two.

        An encoding with something ``overflowing`` was cut.
        """
        prompt = self._prompts[role]
        blank = [row for row, text in enumerate(texts) if not text or text.isspace()]
        failures = {row: PermanentError("the text is blank", code="blank") for row in blank}
        rows = [row for row in range(len(texts)) if row not in failures]
        encoded: dict[int, Encoding] = {}

        def tokenise(part: list[int]) -> PermanentError | None:
            try:
                found = self._tokenizer.encode_batch_fast([prompt + texts[row] for row in part])
            except (TypeError, ValueError, RuntimeError) as error:
                # TypeError: half of a surrogate pair is no text for the tokenizer.
                return PermanentError(f"the tokenizer refuses the text: {error}", code="tokenizer")
            encoded.update(zip(part, found, strict=True))
            return None

        return encoded, failures | failures_by_halving(rows, tokenise)

    def prompt_tokens(self, role: Role) -> int:
        """Tokens before the text: those of the prompt and the special tokens before it."""
        encoding = self._tokenizer.encode(self._prompts[role])
        trailing = 0
        for special in reversed(encoding.special_tokens_mask):
            if not special or trailing == len(encoding) - 1:
                break
            trailing += 1
        return len(encoding) - trailing
