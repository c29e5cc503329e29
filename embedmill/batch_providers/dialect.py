"""How providers with OpenAI's files and batches differ from each other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from embedmill.openai_vectors import AS_SENT, VectorForm


@dataclass(frozen=True, slots=True)
class Dialect:
    """One of them.

    Attributes:
        provider: kind of provider, for handles.
        window: as a creation asks for it.
        creation: further fields of a creation.
        mark: what a job is besides its file, where that does not say it: two models may be given
            equal files.
        refuses_when_full: a creation that is refused with 429 finds too many jobs or tokens under
            way, which takes long to pass.
        form: what is done with vectors before they are checked.
    """

    provider: str
    window: str
    creation: Mapping[str, Any] = field(default_factory=dict)
    mark: str = ""
    refuses_when_full: bool = False
    form: VectorForm = AS_SENT

    def marked(self, fingerprint: str) -> str:
        """What finds a job of this file again."""
        return f"{fingerprint}.{self.mark}" if self.mark else fingerprint

    def unmarked(self, marked: str) -> str:
        """The fingerprint of the file of a job of ours; as it is for all others."""
        return marked.removesuffix(f".{self.mark}") if self.mark else marked


OPENAI = Dialect("openai", "24h")


class Server(Protocol):
    """Settings that say how a server is reached."""

    @property
    def api_key(self) -> str:
        """Name of the environment variable of the key."""
        ...

    @property
    def base_url(self) -> str:
        """Address, with ``/v1``."""
        ...

    @property
    def timeout_s(self) -> float:
        """Silence after which a request counts as lost."""
        ...
