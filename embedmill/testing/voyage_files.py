"""The fake Voyage server's files: in memory, listed as the real one's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from embedmill.testing.fake_api import Request
from embedmill.testing.openai_multipart import MultipartReader
from embedmill.testing.voyage_account import Account, ApiError

_KEPT = timedelta(days=30)


def moment(seconds: float) -> str:
    """A time as the API writes it: RFC 3339."""
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class VoyageFile:
    """One file.

    Attributes:
        id: of it.
        name: as it was uploaded.
        purpose: ``batch``, ``batch-output`` or ``batch-error``.
        content: its bytes.
        created: seconds since the epoch.
    """

    id: str
    name: str
    purpose: str
    content: bytes
    created: float

    def record(self) -> dict[str, Any]:
        """As the API shows it; there is no status."""
        return {
            "id": self.id,
            "object": "file",
            "purpose": self.purpose,
            "filename": self.name,
            "bytes": len(self.content),
            "created_at": moment(self.created),
            "expires_at": moment(self.created + _KEPT.total_seconds()),
        }


class VoyageFiles:
    """All files of an account."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._files: dict[str, VoyageFile] = {}
        self._count = 0

    def receive(self, request: Request) -> dict[str, Any]:
        """Keep an upload.

        Raises:
            ApiError: it is no file for jobs.
        """
        name, purpose, content = "", "", b""
        for part, filename, data in MultipartReader(request).parts():
            value = b"".join(data)
            if part == "file":
                name, content = filename, value
            elif part == "purpose":
                purpose = value.decode()
        if purpose != "batch" or not name or not content:
            raise ApiError(400, "A file and the purpose 'batch' are required.")
        return self.add(name, purpose, content).record()

    def add(self, name: str, purpose: str, content: bytes) -> VoyageFile:
        """Keep a file."""
        with self._account.lock:
            self._count += 1
            file_id = f"file-{self._count:08d}"
            file = VoyageFile(file_id, name, purpose, content, self._account.options.now())
            self._files[file_id] = file
        return file

    def get(self, file_id: str) -> VoyageFile:
        """One file.

        Raises:
            ApiError: there is none.
        """
        file = self._files.get(file_id)
        if file is None:
            raise ApiError(404, f"File {file_id} not found")
        return file

    def delete(self, file_id: str) -> dict[str, Any]:
        """Forget a file."""
        self.get(file_id)
        with self._account.lock:
            del self._files[file_id]
        return {"id": file_id, "object": "file", "deleted": True}

    def listed(self, query: dict[str, str]) -> dict[str, Any]:
        """Part of all files, newest first unless ``order=asc``."""
        with self._account.lock:
            records = [file.record() for file in self._files.values()]
        purpose = query.get("purpose")
        records = [record for record in records if purpose in {None, record["purpose"]}]
        if query.get("order", "desc") == "desc":
            records.reverse()
        return page(records, query, most=10_000, default=10_000)


def page(
    records: list[dict[str, Any]], query: dict[str, str], *, most: int, default: int
) -> dict[str, Any]:
    """Part of a listing, after the id ``after``.

    Raises:
        ApiError: the limit is out of bounds.
    """
    limit = int(query.get("limit", default))
    if not 1 <= limit <= most:
        raise ApiError(422, f"limit must be from 1 to {most}")
    ids = [record["id"] for record in records]
    after = query.get("after")
    start = ids.index(after) + 1 if after in ids else 0
    return {
        "object": "list",
        "data": records[start : start + limit],
        "has_more": start + limit < len(records),
    }
