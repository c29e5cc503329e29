"""Names in Weaviate: of collections, aliases and tenants.

A collection or alias of Weaviate is a capital letter, then letters, digits and ``_``, and two that
differ only in case are one. So ours begin with ``Embedmill_``, and what does not fit is spelt out:

=================  =========
in our name        in theirs
=================  =========
``a``-``y``, 0-9   the same
``-``              ``_``
``_``              ``zu``
``.``              ``zp``
``z``              ``zz``
``A``-``Z``        ``zc``, then the small letter
=================  =========

A name that becomes too long, or is none of ours, is ``Embedmill_zh`` and a hash; the description of
a collection has its name in full.
"""

from __future__ import annotations

import re
from hashlib import blake2b

PREFIX = "Embedmill_"
# Of a class's name, with room for what the server adds in file names.
_LONGEST = 230
_OURS = re.compile(r"[A-Za-z0-9_.-]+")
_SPELT = {"-": "_", "_": "zu", ".": "zp", "z": "zz"}
_HASHED = "zh"
_UNITS = re.compile(r"z(?:c([a-z])|([uzp]))|_|[a-y0-9]")
_BACK = {"u": "_", "z": "z", "p": "."}
# No text has it: none begins with an underscore, and a hash is longer.
NO_TEXT = "_other"
_TENANT = re.compile(r"[A-Za-z0-9-]{1,60}")


def class_name(name: str) -> str:
    """The name in Weaviate of a collection or alias of ours."""
    spelt = "".join(_SPELT.get(one, f"zc{one.lower()}" if one.isupper() else one) for one in name)
    if len(spelt) > _LONGEST or not _OURS.fullmatch(name):
        spelt = _HASHED + blake2b(name.encode(), digest_size=16).hexdigest()
    return PREFIX + spelt


def name_of_class(name: str) -> str | None:
    """Our name of a collection or alias, or None when it is not one of ours or was hashed."""
    if not name.startswith(PREFIX):
        return None
    spelt = name.removeprefix(PREFIX)
    ours, place = "", 0
    while place < len(spelt):
        unit = _UNITS.match(spelt, place)
        if unit is None:
            return None
        capital, other = unit.groups()
        ours += capital.upper() if capital else _BACK[other] if other else unit[0].replace("_", "-")
        place = unit.end()
    return ours


def tenant_name(value: object) -> str:
    """The tenant of a metadata value: 1 to 64 letters, digits, ``-`` and ``_`` in Weaviate.

    A text that is such a name is its own tenant, other texts are hashed, and what is no text is all
    in :data:`NO_TEXT`; no two texts meet.
    """
    if not isinstance(value, str):
        return NO_TEXT
    if _TENANT.fullmatch(value):
        return value
    return "_" + blake2b(value.encode(), digest_size=16).hexdigest()
