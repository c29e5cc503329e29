"""How often a process that handles many rows looks for garbage in cycles."""

from __future__ import annotations

import gc

# New objects until the next look; Python's own number is 700.
_NEW_OBJECTS = 50_000


def collect_rarely() -> None:
    """Have the collector of cycles look less often, and never again at what is there now.

    Rows are many small tuples, which cycles do not hold: looking at each of them again and again
    takes 12 to 17 % of drafting small documents. For processes of our own, after their
    imports.
    """
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, 10, 10)
