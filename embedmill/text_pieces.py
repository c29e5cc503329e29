"""What stands between the blanks of many texts, each different piece looked at once.

The words of a language come again and again: 512 texts of 140 words have some hundred different
ones. Parting and numbering them in Arrow takes less than half the time of asking a dictionary for
each: counting such a text takes 7.5 us, not 15.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Integers: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TextPieces:
    """The pieces of some texts, in order.

    Attributes:
        distinct: each different piece once; one of them may be empty.
        numbers: for every piece of every text its place in ``distinct``.
        ends: for every text where its pieces end in ``numbers``.
    """

    distinct: Sequence[str]
    numbers: Integers
    ends: Integers

    @classmethod
    def of(cls, texts: Sequence[str]) -> Self:
        r"""Part texts at space, \t, \n, \v, \f and \r; other blanks stay in the pieces."""
        # Takes 0.1 s, and whoever finds nothing to do needs none of it.
        from pyarrow import compute

        try:
            column = pa.array(texts, pa.large_string())
        except UnicodeEncodeError:
            # Halves of surrogate pairs, which Arrow does not take for text, stay what they are.
            data = [text.encode("utf-8", "surrogatepass") for text in texts]
            column = pa.array(data, pa.large_binary()).view(pa.large_string())
        parted = compute.ascii_split_whitespace(column)
        encoded = parted.flatten().dictionary_encode()
        distinct = encoded.dictionary.view(pa.large_binary()).to_pylist()
        return cls(
            [piece.decode("utf-8", "surrogatepass") for piece in distinct],
            encoded.indices.to_numpy().astype(np.int64),
            parted.offsets.to_numpy()[1:].astype(np.int64),
        )

    def sums(self, sizes: Integers) -> Integers:
        """For every text the sum over its pieces of what is given for each different one."""
        if (sizes == 1).all():
            return np.diff(self.ends, prepend=0)
        totals = np.append(0, np.cumsum(sizes[self.numbers]))
        found: Integers = np.diff(totals[self.ends], prepend=0)
        return found

    def spread(self, sizes: Integers) -> Integers:
        """Where the parts of every piece of every text stand, when those of ``distinct`` are a row.

        Args:
            sizes: how many parts each different piece has.
        """
        if (sizes == 1).all():
            return self.numbers
        counts = sizes[self.numbers]
        # Of each piece: where its parts stand among those of distinct pieces, and where they go.
        sources, targets = (np.cumsum(sizes) - sizes)[self.numbers], np.cumsum(counts) - counts
        places: Integers = np.arange(counts.sum()) + np.repeat(sources - targets, counts)
        return places
