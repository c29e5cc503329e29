"""What a fake provider charged for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any


@dataclass(slots=True)
class Charge:
    """What one job, or all direct requests, were charged for."""

    texts: int = 0
    tokens: int = 0


class Bill:
    """What was embedded and charged for, by job and by text. Texts are kept as digests."""

    DIRECT = "direct"

    def __init__(self) -> None:
        self.charges: dict[str, Charge] = {}
        self._times: Counter[bytes] = Counter()
        self._lock = threading.RLock()

    def add(self, job_id: str, texts: Sequence[str], tokens: int) -> None:
        """Charge for texts."""
        with self._lock:
            charge = self.charges.setdefault(job_id, Charge())
            charge.texts += len(texts)
            charge.tokens += tokens
            self._times.update(map(_digest, texts))

    @property
    def texts(self) -> int:
        """Charged for, each as often as it was."""
        with self._lock:
            return sum(self._times.values())

    @property
    def tokens(self) -> int:
        """Charged for."""
        with self._lock:
            return sum(charge.tokens for charge in self.charges.values())

    def times(self, text: str) -> int:
        """How often this text was charged for."""
        return self._times[_digest(text)]

    def more_than_once(self) -> int:
        """Number of different texts that were charged for more than once."""
        with self._lock:
            return sum(times > 1 for times in self._times.values())

    def summary(self) -> dict[str, Any]:
        """The bill as JSON."""
        with self._lock:
            return {
                "texts": self.texts,
                "tokens": self.tokens,
                "texts_charged_more_than_once": self.more_than_once(),
                "jobs": {
                    job_id: {"texts": charge.texts, "tokens": charge.tokens}
                    for job_id, charge in self.charges.items()
                },
            }


def _digest(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()
