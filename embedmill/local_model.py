"""The contract of a local model: tokens in, one vector for each text out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from embedmill.embedder import Vectors
from embedmill.errors import PermanentError

Backend = Literal["torch", "openvino", "onnx"]
Integers = npt.NDArray[np.int64]


class TokenIds(Protocol):
    """One text as a model reads it; an ``Encoding`` of the tokenizers library is one."""

    @property
    def ids(self) -> Sequence[int]:
        """Of the tokens, special ones included."""
        ...

    @property
    def type_ids(self) -> Sequence[int]:
        """Of the segments that the tokens belong to."""
        ...

    def __len__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class BatchForm:
    """What a model takes at once where it is fastest.

    Attributes:
        rows: texts of one batch, whatever their length.
        tokens: a batch of short texts may have more rows until it has so many, padded; 0: never.
        streams: batches that are computed beside each other.
        smallest: the last batches of a call become smaller, down to so many tokens, so that all
            streams end together; 0: the device likes no small batches.
    """

    rows: int
    tokens: int
    streams: int = 1
    smallest: int = 0


class LocalModel(Protocol):
    """A model in memory. As many threads as it has streams may call it at once.

    Attributes:
        backend: what computes.
        form: of the batches that it likes best; may change when memory turns out to be short.
    """

    backend: Backend
    form: BatchForm

    def pooled(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:
        """One vector for each text, after all of the model's own modules.

        Args:
            texts: of one batch; they are padded to the longest.
            prompt_tokens: at the beginning of each text, which some models leave out of the mean.

        Returns:
            float32, shape (texts, the model's dimension).

        Raises:
            PermanentError: it fails on at least one of the texts.
            TransientError: there is no memory for so many texts.
            WorkerDiedError: the device is lost to this process.
        """
        ...


def padded(texts: Sequence[TokenIds], pad_id: int, *, left: bool = False) -> Integers:
    """Ids, mask and segment ids as one table of shape (3, texts, longest text)."""
    width = max(map(len, texts))
    table = np.zeros((3, len(texts), width), np.int64)
    table[0] = pad_id
    for row, text in enumerate(texts):
        length = len(text)
        at = slice(width - length, width) if left else slice(0, length)
        table[0, row, at] = text.ids
        table[1, row, at] = 1
        table[2, row, at] = text.type_ids
    return table


def refuse_unknown_tokens(table: Integers, vocabulary: int) -> None:
    """Fail a batch with an id for which the model has no row.

    Args:
        table: as :func:`padded` makes it.
        vocabulary: ids are below it; 0: not known, nothing is refused.

    Raises:
        PermanentError: there is one.
    """
    highest = table[0].max()
    if vocabulary and highest >= vocabulary:
        raise PermanentError(
            f"the model fails on the text: token {highest} is not among its {vocabulary}",
            code="model",
        )
