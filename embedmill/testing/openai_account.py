"""The fake OpenAI server's state: files, the bill, and what counts as an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embedmill.testing.fake_api import RefusedRequest, Reply
from embedmill.testing.openai_faults import Fault
from embedmill.testing.provider_account import ProviderAccount, ProviderOptions

# As OpenAI's: bytes of a batch file, seconds that files are kept.
FILE_BYTES = 209_715_200
KEPT_S = 30 * 86_400


class ApiError(RefusedRequest):
    """An error reply in OpenAI's shape.

    Attributes:
        status: of HTTP.
        body: as JSON.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.body = {"error": {"message": message, "type": kind, "param": param, "code": code}}
        super().__init__(Reply.of_json(self.body, status, headers))


@dataclass(frozen=True, slots=True)
class ServerOptions(ProviderOptions):
    """How the fake server behaves when nothing goes wrong; no polls: jobs are finished at once.

    Attributes:
        enqueued_tokens: over all unfinished jobs; a job beyond it fails after its creation.
        creations_per_hour: of jobs.
        ranges: whether a part of a file may be asked for.
        base64: whether ``encoding_format: base64`` is honoured.
        share_done_at_cancel: of a running job's rows that were executed, and are charged for.
        canned: embed nothing: answer with vectors that were made once, for measuring clients.
    """

    enqueued_tokens: int | None = None
    creations_per_hour: int = 2000
    ranges: bool = True
    base64: bool = True
    share_done_at_cancel: float = 0.5
    canned: bool = False


@dataclass(slots=True)
class StoredFile:
    """A file and where its bytes are."""

    id: str
    name: str
    purpose: str
    path: Path
    created_at: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.path.stat().st_size

    def record(self) -> dict[str, Any]:
        """As the API shows it."""
        return {
            "object": "file",
            "id": self.id,
            "purpose": self.purpose,
            "filename": self.name,
            "bytes": self.size,
            "created_at": self.created_at,
            "expires_at": self.created_at + KEPT_S,
            "status": "processed",
            "status_details": None,
        }


@dataclass(slots=True)
class Account(ProviderAccount[ServerOptions, Fault]):
    """All files and the bill of one fake server.

    Attributes:
        folder: holds the files' bytes.
        files: by id.
    """

    folder: Path = field(kw_only=True)
    files: dict[str, StoredFile] = field(default_factory=dict)
    _counts: Counter[str] = field(default_factory=Counter)

    def new_id(self, kind: str) -> str:
        """The next id of a kind: ``file-0000000001``."""
        with self.lock:
            self._counts[kind] += 1
            return f"{kind}{self._counts[kind]:010d}"

    def new_file(self, name: str, purpose: str) -> StoredFile:
        """A file that is not listed before :meth:`keep`; its bytes are for the caller to write."""
        file_id = self.new_id("file-")
        path = self.folder / file_id
        return StoredFile(file_id, name, purpose, path, int(self.options.now()))

    def keep(self, file: StoredFile) -> dict[str, Any]:
        """List a file from now on.

        Raises:
            ApiError: it was sent and is no file for jobs, by its name or its size. Lines are not
                looked at.
        """
        if file.purpose == "batch" and not file.name.endswith(".jsonl"):
            raise ApiError(400, "Invalid file format for Batch API. Must be .jsonl")
        # Results may well be larger.
        if file.purpose == "batch" and file.size > FILE_BYTES:
            raise ApiError(413, f"{file.size} bytes; the maximum is {FILE_BYTES}")
        with self.lock:
            self.files[file.id] = file
        return file.record()

    def file(self, file_id: str) -> StoredFile:
        """One file.

        Raises:
            ApiError: there is none.
        """
        with self.lock:
            if file_id not in self.files:
                raise ApiError(404, f"No such File object: {file_id}", param="id")
            return self.files[file_id]

    def delete_file(self, file_id: str) -> dict[str, Any]:
        """Forget a file."""
        file = self.file(file_id)
        with self.lock:
            del self.files[file_id]
        file.path.unlink(missing_ok=True)
        return {"id": file_id, "object": "file", "deleted": True}

    def list_files(self, query: dict[str, str]) -> dict[str, Any]:
        """Part of all files, newest first unless ``order=asc``."""
        with self.lock:
            files: Iterator[StoredFile] = iter(list(self.files.values()))
        chosen = [
            file.record() for file in files if query.get("purpose", file.purpose) == file.purpose
        ]
        if query.get("order", "desc") == "desc":
            chosen.reverse()
        return page(chosen, query, most=10_000, default=10_000)


def page(
    records: list[dict[str, Any]], query: dict[str, str], *, most: int, default: int
) -> dict[str, Any]:
    """Part of a listing, after the id ``after``.

    Raises:
        ApiError: the limit is out of bounds, or there is no such id.
    """
    limit = int(query.get("limit", default))
    if not 1 <= limit <= most:
        raise ApiError(400, f"limit must be from 1 to {most}", param="limit")
    ids = [record["id"] for record in records]
    after = query.get("after")
    if after is not None and after not in ids:
        raise ApiError(400, f"No such object: {after}", param="after")
    start = ids.index(after) + 1 if after is not None else 0
    data = records[start : start + limit]
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": start + limit < len(records),
    }
