"""How providers encode vectors, and making float32 of it.

``float`` is float32, little-endian. ``int8`` and ``uint8`` are components on a scale, ``uint8``
shifted by 128. ``ubinary`` packs the signs of eight components in a byte, the first in the highest
bit; ``binary`` is the same shifted by -128.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from embedmill.embedder import Vectors, norms_of


def _signs(packed: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.unpackbits(packed).astype(np.float32) * 2 - 1


# The type on the wire, and how it becomes components.
_WIRE: dict[str, tuple[str, Callable[[npt.NDArray[Any]], npt.NDArray[Any]]]] = {
    "float": ("<f4", lambda sent: sent),
    "int8": ("i1", lambda sent: sent),
    "uint8": ("u1", lambda sent: sent.astype(np.float32) - 128),
    "binary": ("i1", lambda sent: _signs((sent.astype(np.int16) + 128).astype(np.uint8))),
    "ubinary": ("u1", _signs),
}


def from_bytes(packed: bytes, kind: str) -> Vectors:
    """Components of a vector that was sent as bytes.

    Raises:
        ValueError: so many bytes hold no whole number of components.
    """
    wire, unpack = _WIRE[kind]
    if len(packed) % np.dtype(wire).itemsize:
        raise ValueError(f"{len(packed)} bytes are no {wire} values")
    return unpack(np.frombuffer(packed, wire)).astype(np.float32, copy=False)


def from_numbers(values: object, kind: str) -> Vectors:
    """Components of a vector that was sent as a list; a null becomes NaN.

    Raises:
        ValueError: it is no list of numbers, or of numbers that this encoding does not have.
    """
    if not isinstance(values, list):
        raise ValueError(f"no list of numbers: {str(values)[:20]}")  # noqa: TRY004, as all others
    wire, unpack = _WIRE[kind]
    try:
        if kind == "float":
            return np.array(values, np.float32)
        sent = np.array(values, np.float64)
        if not np.isfinite(sent).all():
            raise ValueError("not all are numbers")
        whole = sent.astype(wire)
    except TypeError as error:
        raise ValueError(f"no list of numbers: {error}") from error
    if not np.array_equal(sent, whole):
        raise ValueError(f"not all are {wire} values")
    return unpack(whole).astype(np.float32, copy=False)


def normalised(vectors: Vectors) -> Vectors:
    """Each row divided by its norm; a row of zeros, or one that is not finite, stays."""
    norms = norms_of(vectors)
    norms[~np.isfinite(norms) | (norms == 0)] = 1
    divisors: Vectors = norms[:, None].astype(np.float32)
    return vectors / divisors
