"""Closing what may or may not hold anything."""

from __future__ import annotations


def let_go(thing: object) -> None:
    """Close an embedder, a provider or a worker, where it is one that can be closed.

    Their contracts do not ask for a ``close``: many hold nothing.
    """
    close = getattr(thing, "close", None)
    if close is not None:
        close()
