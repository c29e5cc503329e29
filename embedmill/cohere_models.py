"""Cohere's embedding models: what they return and take. Dated data: no call asks for it.

From Cohere's API reference and changelog as of :data:`AS_OF`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

AS_OF: Final = "2026-11-29"
# Texts in one request, whatever the model.
MOST_INPUTS: Final = 96


@dataclass(frozen=True, slots=True)
class CohereModel:
    """One model.

    Attributes:
        dimension: of a vector when none is asked for.
        dimensions: that may be asked for; one alone: it may not be asked for at all.
        window: tokens of one text.
        jobs: whether Cohere's embedding jobs take it.
    """

    dimension: int
    dimensions: tuple[int, ...]
    window: int
    jobs: bool = False

    @property
    def shortens(self) -> bool:
        """Whether a request may say how long the vectors are to be."""
        return len(self.dimensions) > 1


_V5 = CohereModel(2048, (256, 512, 768, 1024, 1536, 2048), 128_000)
_V3, _V3_LIGHT = (CohereModel(size, (size,), 512, jobs=True) for size in (1024, 384))
COHERE_MODELS: Final = {
    "embed-v5.0-pro": _V5,
    "embed-v5.0-fast": _V5,
    "embed-v4.0": CohereModel(1536, (256, 512, 1024, 1536), 128_000),
    "embed-english-v3.0": _V3,
    "embed-multilingual-v3.0": _V3,
    "embed-english-light-v3.0": _V3_LIGHT,
    "embed-multilingual-light-v3.0": _V3_LIGHT,
}
