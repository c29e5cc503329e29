"""How the fake Qdrant server refuses: status and words of the real one."""

from __future__ import annotations

from typing import Any


class ServerError(Exception):
    """A refusal as the real server words it."""

    def __init__(self, status: int, words: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(words)
        self.status = status
        self.words = words
        self.headers = headers or {}


def envelope(result: object) -> dict[str, Any]:
    """A reply that went well."""
    return {"result": result, "status": "ok", "time": 0.0}


def refusal(error: ServerError) -> dict[str, Any]:
    """A reply that did not."""
    return {"status": {"error": error.words}, "time": 0.0}


def absent(name: str) -> ServerError:
    """There is no such collection."""
    return ServerError(404, f"Not found: Collection `{name}` doesn't exist!")
