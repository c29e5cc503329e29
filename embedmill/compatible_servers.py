"""What servers that speak OpenAI's language do differently. Dated data, not code.

Read from the servers' documentation and sources as of :data:`AS_OF`; all of it can be overridden
in the settings. What is no known limit of the server is a choice of ours, so that one bad text
spoils no large request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

AS_OF: Final = "2026-11-29"
ServerName = Literal["azure", "tei", "vllm", "infinity", "ollama", "litellm", "other"]


@dataclass(frozen=True, slots=True)
class CompatibleServer:
    """One of them.

    Attributes:
        inputs_per_request: that are sent at most.
        needs_key: whether none answers without a key.
        key_header: header that the key stands in; ``authorization`` puts ``Bearer`` before it.
        tokens_per_request: that are sent at most.
    """

    inputs_per_request: int
    needs_key: bool = False
    key_header: str = "authorization"
    tokens_per_request: int = 250_000


COMPATIBLE_SERVERS: Final[dict[ServerName, CompatibleServer]] = {
    # Azure OpenAI: as OpenAI, with deployments for models and the key in a header of its own.
    "azure": CompatibleServer(512, needs_key=True, key_header="api-key"),
    # Text Embeddings Inference: --max-client-batch-size is 32 unless it is raised; 413 beyond it.
    "tei": CompatibleServer(32),
    "vllm": CompatibleServer(256),
    "infinity": CompatibleServer(256),
    # Ollama embeds the texts of a request in turn; a long request only waits longer.
    "ollama": CompatibleServer(64),
    # A proxy: the limits are those of whoever is behind it.
    "litellm": CompatibleServer(256),
    "other": CompatibleServer(64),
}
