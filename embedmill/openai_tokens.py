"""Counting tokens for models behind a server: as theirs do, or cautiously guessing."""

from __future__ import annotations

import string
from base64 import b64decode
from collections.abc import Callable, Sequence
from hashlib import blake2b, sha256
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from embedmill.errors import MissingExtraError, RefusedError
from embedmill.tokenizer import TokenCounter, WordMeasure
from embedmill.word_measures import CachedWords

if TYPE_CHECKING:
    from tiktoken import Encoding

ESTIMATE = "estimate"
# How cl100k_base cuts a text before pairs are merged; tiktoken keeps it beside a download that
# cannot be had apart.
_CL100K_PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|"
    r"\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)
# SHA-256 of the published file, as tiktoken has it: a copy counts like the download.
_CL100K_SHA256 = "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"
_LETTERS = (string.ascii_letters + string.whitespace).encode()
_DIGITS = string.digits.encode()
_MARKS = bytes(set(range(128)) - set(_LETTERS) - set(_DIGITS))


def estimated_tokens(text: str) -> int:
    """Guess the tokens of a text, rather too many than too few.

    A token for each mark, for two digits, for three letters or blanks, for two bytes of anything
    that is not ASCII; English has about 4.3 characters a token, code and HTML 2.5 to 3. Not a
    bound: a text of rare characters may have a token for each byte.
    """
    return -(-_sixths(text) // 6)


def _sixths(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    without_letters = data.translate(None, _LETTERS)
    without_digits = without_letters.translate(None, _DIGITS)
    foreign = len(without_digits.translate(None, _MARKS))
    letters, digits = len(data) - len(without_letters), len(without_letters) - len(without_digits)
    marks = len(without_digits) - foreign
    return 2 * letters + 3 * digits + 6 * marks + 3 * foreign


class CuttingCounter(TokenCounter, Protocol):
    """A counter that can cut a text to a number of tokens as well."""

    def cut(self, text: str, size: int) -> str:
        """The beginning of ``text`` that counts as ``size`` tokens at most."""
        ...


class TokenEstimate:
    """A :class:`~embedmill.tokenizer.TokenCounter` that guesses."""

    fingerprint = "utf8-estimate-1"

    @property
    def sizer(self) -> Callable[[str], int]:
        """Counts one text."""
        return estimated_tokens

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text."""
        return [estimated_tokens(text) for text in texts]

    def word_measure(self) -> WordMeasure:
        """In sixths of a token, since each word rounded up would be too many."""
        return CachedWords(
            lambda words: list(map(_sixths, words)), unit=6, with_blanks=True, adds_up=False
        )

    def cut(self, text: str, size: int) -> str:
        """The longest beginning that counts as ``size`` tokens at most."""
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            low, high = (
                (middle, high) if estimated_tokens(text[:middle]) <= size else (low, middle - 1)
            )
        return text[:low]


class TiktokenCounter:
    """A :class:`~embedmill.tokenizer.TokenCounter` that counts as OpenAI's server does."""

    def __init__(self, encoding: Encoding, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self._encoding = encoding

    @property
    def sizer(self) -> Callable[[str], int]:
        """Counts one text."""
        return lambda text: len(self._encoding.encode_ordinary(text))

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text; control strings are text."""
        return [len(tokens) for tokens in self._encoding.encode_ordinary_batch(list(texts))]

    def cut(self, text: str, size: int) -> str:
        """The beginning that is ``size`` tokens; a character that is cut through is left out."""
        tokens = self._encoding.encode_ordinary(text)[:size]
        return self._encoding.decode_bytes(tokens).decode("utf-8", "ignore")


def token_counter(tokenizer: str) -> CuttingCounter:
    """What the settings' ``tokenizer`` names.

    Never falls back: what counts is part of the chunking recipe, and another machine must count
    alike.

    Raises:
        MissingExtraError: tiktoken is not installed.
        RefusedError: the encoding can neither be found nor downloaded.
    """
    if tokenizer == ESTIMATE:
        return TokenEstimate()
    if tokenizer.endswith(".json"):
        from embedmill.embedders.model_tokenizer import JsonTokenizer

        return JsonTokenizer(Path(tokenizer))
    try:
        import tiktoken
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"embedder.tokenizer {tokenizer!r} needs tiktoken, which is not installed",
            hint="pip install 'embedmill[openai]', or set embedder.tokenizer to estimate",
        ) from error
    if tokenizer.endswith(".tiktoken"):
        return _from_file(Path(tokenizer))
    try:
        encoding = tiktoken.get_encoding(tokenizer)
    except ValueError as error:
        raise RefusedError(
            f"embedder.tokenizer: tiktoken knows no encoding {tokenizer!r}", code="tokenizer"
        ) from error
    except OSError as error:
        # tiktoken downloads with requests, whose errors are all OSErrors.
        raise RefusedError(
            f"embedder.tokenizer: {tokenizer} cannot be downloaded: {type(error).__name__}",
            code="tokenizer",
            hint="set TIKTOKEN_CACHE_DIR to a folder that has it, or embedder.tokenizer to the "
            "path of a .tiktoken file, or to estimate",
        ) from error
    return TiktokenCounter(encoding, f"tiktoken-{tokenizer}")


def packing_counter(tokenizer: str) -> CuttingCounter:
    """As :func:`token_counter`, but a guess where that is not to be had: for packing only."""
    try:
        return token_counter(tokenizer)
    except RefusedError:
        return TokenEstimate()


def _from_file(path: Path) -> TiktokenCounter:
    from tiktoken import Encoding

    try:
        content = path.read_bytes()
        pairs = (line.split() for line in content.splitlines() if line)
        ranks = {b64decode(token): int(rank) for token, rank in pairs}
    except (OSError, ValueError) as error:
        raise RefusedError(
            f"embedder.tokenizer: {path} cannot be read: {error}", code="tokenizer"
        ) from error
    encoding = Encoding(
        "cl100k_base", pat_str=_CL100K_PATTERN, mergeable_ranks=ranks, special_tokens={}
    )
    published = sha256(content).hexdigest() == _CL100K_SHA256
    digest = "cl100k_base" if published else blake2b(content, digest_size=6).hexdigest()
    return TiktokenCounter(encoding, f"tiktoken-{digest}")
