"""What a network of torch takes: the texts of one batch, as tensors on its device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True, slots=True)
class TorchBatch:
    """Texts of one batch.

    Attributes:
        ids: of the tokens; int64, shape (texts, longest text), as the next two.
        mask: 1 for the tokens of a text, 0 for padding.
        types: of the segments that the tokens belong to.
        has_padding: a text is shorter than the longest. Known before the device knows the mask.
        prompt_tokens: at the beginning of each text.
    """

    ids: Tensor
    mask: Tensor
    types: Tensor
    has_padding: bool
    prompt_tokens: int


class TorchNetwork(Protocol):
    """From tokens to vectors, on one device.

    Attributes:
        pad_id: what stands for no token.
        pads_left: padding comes first.
    """

    pad_id: int
    pads_left: bool

    def __call__(self, batch: TorchBatch) -> Tensor:
        """One vector for each text, after all of the model's own modules; float32."""
        ...
