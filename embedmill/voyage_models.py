"""Voyage's embedding models: what they return and take. Dated data: no call asks for it.

From Voyage's documentation (embeddings, rate limits, batch inference) as of :data:`AS_OF`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AS_OF: Final = "2026-11-29"
# Texts in one request, whatever the model.
MOST_INPUTS: Final = 1000
_SHORTER = (256, 512, 1024, 2048)


@dataclass(frozen=True, slots=True)
class VoyageModel:
    """One model.

    Attributes:
        dimension: of a vector when none is asked for.
        dimensions: that may be asked for.
        request_tokens: of all texts of one request; each counts up to the window.
        window: tokens of one text.
        quantised: whether other types than floats may be asked for.
        jobs: whether Voyage's Batch API takes it.
    """

    dimension: int
    dimensions: tuple[int, ...]
    request_tokens: int
    window: int = 32_000
    quantised: bool = True
    jobs: bool = True


VOYAGE_MODELS: Final = {
    "voyage-4-large": VoyageModel(1024, _SHORTER, 120_000),
    "voyage-4": VoyageModel(1024, _SHORTER, 320_000),
    "voyage-4-lite": VoyageModel(1024, _SHORTER, 1_000_000),
    "voyage-3-large": VoyageModel(1024, _SHORTER, 120_000),
    "voyage-3.5": VoyageModel(1024, _SHORTER, 320_000),
    "voyage-3.5-lite": VoyageModel(1024, _SHORTER, 1_000_000),
    "voyage-code-3": VoyageModel(1024, _SHORTER, 120_000),
    "voyage-finance-2": VoyageModel(1024, (1024,), 120_000, quantised=False, jobs=False),
    "voyage-law-2": VoyageModel(1024, (1024,), 120_000, 16_000, quantised=False, jobs=False),
}
# Of a model that is not listed: the strictest of the caps.
UNLISTED_REQUEST_TOKENS: Final = 120_000
