"""Numbers as people read them."""

from __future__ import annotations


def number_of(number: int, one: str, many: str = "") -> str:
    """A number with its noun: ``1 document``, ``1,337 documents``, ``2 tries``.

    Args:
        number: of them.
        one: the noun for one.
        many: for any other number; without it ``one`` with an s.
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def agreed(number: int, one: str, many: str) -> str:
    """What agrees with a number: ``is`` with one, ``are`` with any other."""
    return one if number == 1 else many
