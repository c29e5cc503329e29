"""The contract of an embedder: texts to vectors, order kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from embedmill.errors import PermanentError
from embedmill.recipe import EmbeddingRecipe

Role = Literal["document", "query"]
Vectors = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """Vectors for texts, row for row.

    Attributes:
        vectors: float32, shape (n, dimension); the row of a failed text is NaN, never a filler.
        failures: by row; a row is either here or a finite vector.
        token_count: tokens that the model saw, special tokens and prompts included.
        truncated: rows whose text exceeded the window.
    """

    vectors: Vectors
    failures: Mapping[int, PermanentError] = field(default_factory=dict)
    token_count: int = 0
    truncated: int = 0


class Embedder(Protocol):
    """Holds one model. One that holds connections as well may have a ``close``."""

    recipe: EmbeddingRecipe

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; order in is order out.

        Every vector is checked: finite, non-zero, norm 1 within 1e-3 where the recipe says
        normalised. A text that fails is a failure of its own row.

        Raises:
            TransientError: nothing of this call was kept; the same call may succeed later.
            StopRunError: no call can succeed (credentials, model gone).
        """
        ...


def checked_rows(
    vectors: Vectors, recipe: EmbeddingRecipe
) -> tuple[Vectors, dict[int, PermanentError]]:
    """Check vectors against the recipe; failed rows become NaN and get a reason.

    Args:
        vectors: shape (n, dimension).
        recipe: says dimension and normalisation.

    Returns:
        The vectors (a copy when a row failed) and the failures by row.

    Raises:
        PermanentError: the dimension is not the recipe's; no row of it could be right.
    """
    if vectors.ndim != 2 or vectors.shape[1] != recipe.dimension:
        raise PermanentError(
            f"the model returned vectors of shape {vectors.shape}, the recipe says dimension "
            f"{recipe.dimension}",
            code="dimension",
        )
    norms = norms_of(vectors)
    failures: dict[int, PermanentError] = {}
    finite = np.isfinite(norms)
    for row in np.flatnonzero(~finite):
        failures[int(row)] = PermanentError("the vector is not finite", code="not-finite")
    for row in np.flatnonzero(finite & (norms == 0)):
        failures[int(row)] = PermanentError("the vector is zero", code="zero-vector")
    if recipe.normalise:
        # 1e-3: bfloat16 models normalise in float32 here; rounding stays under 1e-6.
        for row in np.flatnonzero(finite & (norms > 0) & (np.abs(norms - 1) > 1e-3)):
            failures[int(row)] = PermanentError(
                f"the norm is {norms[row]:.4f}, not 1", code="not-normalised"
            )
    if failures:
        vectors = vectors.copy()
        vectors[list(failures)] = np.nan
    return vectors, failures


def norms_of(vectors: Vectors) -> npt.NDArray[np.float64]:
    """Euclidean norms, to about 1e-6; squares of components at the ends of float32 included."""
    norms: npt.NDArray[np.float64]
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("ij,ij->i", vectors, vectors)).astype(np.float64)
    # Where squares ran over or under, or there was nothing to square: look again, precisely.
    odd = ~(np.isfinite(norms) & (norms > 1e-15))
    if odd.any():
        norms[odd] = np.linalg.norm(vectors[odd].astype(np.float64), axis=1)
    return norms
