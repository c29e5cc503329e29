"""What entity tags say: whether an object may have changed."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TYPE_CHECKING, TypeGuard

from embedmill.source import TAG_BYTES

if TYPE_CHECKING:
    # This name exists for type checkers only.
    from obstore import ObjectMeta

# As many as one reply lists: a store whose tags repeat shows it among so many.
_LOOKED_AT = 1_000
# Of the content, or of the digests of its parts and how many these are.
_DIGEST = re.compile(r"[0-9a-f]{32}(-\d+)?")


def names_content(entity: str | None) -> TypeGuard[str]:
    """Whether an entity tag is there, and no weak one: under that bytes may differ."""
    return entity is not None and bool(entity.strip('"')) and not entity.startswith("W/")


def tag_of(place: str, meta: ObjectMeta) -> bytes | None:
    """16 bytes that change whenever an object may have changed.

    By RFC 9110 the entity tag alone would do. The size costs nothing; the time is left out where
    the tag is a digest, as at S3, so that a copy of the same content is the same. It counts in
    whole seconds: a reply to GET says no more.

    Args:
        place: that the key belongs to; entity tags of two places have nothing to do with each
            other.
        meta: of a listing, or of the reply with the object's bytes.

    Returns:
        None when the store gives no entity tag, or a weak one, under which bytes may differ.
    """
    if not names_content(meta["e_tag"]):
        return None
    entity = meta["e_tag"].strip('"')
    # Azure has quotes in replies and none in listings.
    time = 0 if _DIGEST.fullmatch(entity) else int(meta["last_modified"].timestamp())
    # No key that the client shows has an end of line.
    facts = f"{place}\n{meta['path']}\n{entity}\n{meta['size']}\n{time}"
    return blake2b(facts.encode(), digest_size=TAG_BYTES).digest()


class RepeatedTags:
    """Looks whether a store gives one entity tag to several contents.

    Attributes:
        found: it does, so that its tags say nothing.
    """

    def __init__(self) -> None:
        self.found = False
        self._sizes: dict[str, int] = {}

    def look_at(self, meta: ObjectMeta) -> None:
        """Look at one object of a listing; at the first thousand of them."""
        if len(self._sizes) < _LOOKED_AT and meta["e_tag"]:
            size = self._sizes.setdefault(meta["e_tag"], meta["size"])
            self.found = self.found or size != meta["size"]
