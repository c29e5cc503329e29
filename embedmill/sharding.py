"""Which shard owns a document: a pure function of its id, the same on every machine."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

# More shards than this make files smaller than they are worth; nothing else breaks.
MAX_SHARDS = 65_536


def doc_key(doc_id: str) -> bytes:
    """16 bytes that stand for a document id in ledgers: blake2b-128 of its UTF-8 bytes.

    Lone surrogates (they come from file names that are not UTF-8) keep their bytes. Two of 2**32
    ids meet with a probability of about 2**-65.
    """
    return blake2b(doc_id.encode("utf-8", "surrogateescape"), digest_size=16).digest()


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """A fixed number of shards; part of an index for its whole life.

    Attributes:
        shard_count: between 1 and 65,536. Data, not topology: one worker or a thousand see the
            same shards.
    """

    shard_count: int

    def __post_init__(self) -> None:
        if not 1 <= self.shard_count <= MAX_SHARDS:
            raise ValueError(f"shard_count must be 1..{MAX_SHARDS}, not {self.shard_count}")

    def shard_of(self, doc_id: str) -> int:
        """Return the shard that owns ``doc_id``: blake2b-64 of its UTF-8 bytes, big endian, modulo.

        Never the builtin ``hash``, which differs from process to process.
        """
        digest = blake2b(doc_id.encode("utf-8", "surrogateescape"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.shard_count
