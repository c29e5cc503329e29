"""How the fake Qdrant server refuses: status and words of the real one."""

from __future__ import annotations

import orjson

from embedmill.testing.fake_api import RefusedRequest, Reply


class ServerError(RefusedRequest):
    """A refusal as the real server words it."""

    def __init__(self, status: int, words: str, headers: dict[str, str] | None = None) -> None:
        self.status = status
        self.words = words
        body = {"status": {"error": words}, "time": 0.0}
        super().__init__(Reply(status, orjson.dumps(body), headers=headers or {}))


def reply_of(result: object) -> Reply:
    """A reply that went well."""
    body = {"result": result, "status": "ok", "time": 0.0}
    return Reply(content=orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY))


def absent(name: str) -> ServerError:
    """There is no such collection."""
    return ServerError(404, f"Not found: Collection `{name}` doesn't exist!")
