"""The data plane of one Pinecone index: one method per request, errors by consequence.

An alias is Pinecone's own namespace alias (API 2026-07): repointing is atomic and live on every
reader when the call returns. The SDK has no methods for them yet, so their routes are called over
its transport.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias
from urllib.parse import quote

import orjson
from pinecone import Index
from pinecone._internal.http_client import HTTPClient
from pinecone.models.imports.model import ImportModel
from pinecone.models.response_info import ResponseInfo
from pinecone.models.vectors.vector import ScoredVector, Vector

from embedmill.errors import OutcomeUnknownError, RefusedError, TransientError
from embedmill.vector_stores.pinecone_errors import (
    AbsentError,
    pinecone_errors,
    reasons,
)

# One record: ``id``, ``values`` as an array of float32, ``metadata``.
Record: TypeAlias = dict[str, Any]

# Of one page; Pinecone's operation limits.
_PAGE = 100
_ALIASES = "/namespace-aliases"
_JSON = {"Content-Type": "application/json"}


def upsert_body(namespace: str, records: Sequence[Record]) -> bytes:
    """The body of a request that writes records."""
    # A float32 is written with the shortest decimals that are it: half the text of doubles.
    return orjson.dumps(
        {"vectors": records, "namespace": namespace}, option=orjson.OPT_SERIALIZE_NUMPY
    )


class PineconeData:
    """Requests to one index.

    Positions (LSN) are of a namespace's log of writes; None when the server did not say.
    """

    def __init__(
        self, index: Index, transport: HTTPClient, dimension: int, secrets: Sequence[str]
    ) -> None:
        """Hold what is needed.

        Args:
            index: of the SDK.
            transport: of that index.
            dimension: of its vectors.
            secrets: never repeated in a message.
        """
        self._index = index
        self._transport = transport
        self._secrets = secrets
        self.dimension = dimension
        # Of norm 1, for what needs a vector that says nothing; zero ones are refused.
        self.unit_vector = [1.0] + [0.0] * (dimension - 1)

    def upsert(self, body: bytes) -> tuple[int, int | None]:
        """Write the records of an :func:`upsert_body` in one request.

        Returns:
            How many the server says it took, and the position of the write.

        Raises:
            PermanentError: it refuses the request for what is in it.
        """
        with pinecone_errors("write", self._secrets):
            # The SDK's own method would have every float as a Python object first, which takes
            # four times as long for 1,536 components.
            reply = self._transport.post("/vectors/upsert", content=body, headers=_JSON)
        try:
            taken = int(orjson.loads(reply.content)["upsertedCount"])
        except (ValueError, KeyError, TypeError) as error:
            raise OutcomeUnknownError(
                "whether Pinecone has taken the records is not known: its reply cannot be read",
                code="outcome-unknown",
            ) from error
        return taken, ResponseInfo(raw_headers=dict(reply.headers)).lsn_committed

    def delete(self, namespace: str, ids: Sequence[str]) -> int | None:
        """Delete at most 1,000 records; return the position of the write.

        Raises:
            AbsentError: there is no such namespace.
        """
        body = {"namespace": namespace, "ids": list(ids)}
        with pinecone_errors("change", self._secrets):
            # The SDK's own method drops the headers of the reply.
            reply = self._transport.post("/vectors/delete", json=body)
        return ResponseInfo(raw_headers=dict(reply.headers)).lsn_committed

    def fetch(self, namespace: str, ids: Sequence[str]) -> Mapping[str, Vector]:
        """Records by id, those that exist."""
        with pinecone_errors("read", self._secrets):
            return self._index.fetch(ids=list(ids), namespace=namespace).vectors

    def query(
        self, namespace: str, vector: Sequence[float], k: int, where: Mapping[str, Any] | None
    ) -> list[ScoredVector]:
        """Nearest records, best first."""
        with pinecone_errors("read", self._secrets):
            reply = self._index.query(
                vector=vector, top_k=k, namespace=namespace, filter=where, include_metadata=True
            )
        return reply.matches

    def indexed_position(self, namespace: str) -> int | None:
        """Position up to which queries see the writes of a namespace."""
        with pinecone_errors("read", self._secrets):
            reply = self._index.query(vector=self.unit_vector, top_k=1, namespace=namespace)
        return reply.response_info.lsn_reconciled if reply.response_info else None

    def id_pages(self, namespace: str) -> Iterator[list[str]]:
        """Ids of all records, page by page."""
        token: str | None = None
        while True:
            with pinecone_errors("read", self._secrets):
                page = self._index.list_paginated(
                    namespace=namespace, limit=_PAGE, pagination_token=token
                )
            yield [item.id for item in page.vectors if item.id]
            token = page.pagination.next if page.pagination else None
            if not token:
                return

    def counted(self, namespace: str) -> int:
        """Records of a namespace, as the statistics have it; they lag behind."""
        with pinecone_errors("read", self._secrets):
            summaries = self._index.describe_index_stats().namespaces
        return summaries[namespace].vector_count if namespace in summaries else 0

    def create_namespace(self, namespace: str) -> bool:
        """Create; False when it is there already.

        Raises:
            RefusedError: an alias has the name.
        """
        try:
            with pinecone_errors("change", self._secrets):
                self._index.create_namespace(name=namespace)
        except RefusedError as error:
            if "NAME_IN_USE_BY_ALIAS" in reasons(error.__cause__):
                raise RefusedError(f"{namespace!r} is an alias already") from error
            if self.has_namespace(namespace):
                return False
            raise
        return True

    def has_namespace(self, namespace: str) -> bool:
        """Whether it exists; an alias is no namespace."""
        try:
            with pinecone_errors("read", self._secrets):
                self._index.describe_namespace(name=namespace)
        except AbsentError:
            return False
        except RefusedError as error:
            if "NAMESPACE_OPERATION_ON_ALIAS" in reasons(error.__cause__):
                return False
            raise
        return True

    def namespaces(self) -> list[str]:
        """Names of all of them."""
        with pinecone_errors("read", self._secrets):
            pages = list(self._index.list_namespaces(limit=_PAGE))
        return [one.name for page in pages for one in page.namespaces]

    def delete_namespace(self, namespace: str) -> None:
        """Delete with all records; absent is no error.

        Raises:
            RefusedError: an alias points at it.
        """
        try:
            with pinecone_errors("change", self._secrets):
                self._index.delete_namespace(name=namespace)
        except AbsentError:
            return

    def alias_target(self, alias: str) -> str | None:
        """The namespace that an alias points at, or None when there is no such alias."""
        try:
            reply = self._alias("GET", alias)
        except AbsentError:
            return None
        return str(reply["target_namespace"])

    def point_alias(self, alias: str, namespace: str) -> None:
        """Make or repoint an alias; live on every reader when it returns.

        Raises:
            RefusedError: a namespace has the name, or there is no such target.
        """
        try:
            self._alias("PATCH", alias, {"target_namespace": namespace})
        except AbsentError:
            self._make_alias(alias, namespace)

    def delete_alias(self, alias: str) -> None:
        """Remove an alias; absent is no error, and its target stays."""
        try:
            with pinecone_errors("change", self._secrets):
                self._transport.delete(f"{_ALIASES}/{quote(alias, safe='')}")
        except AbsentError:
            return

    def aliases_of(self, namespace: str) -> list[str]:
        """Aliases that point at a namespace; at most the first hundred."""
        with pinecone_errors("read", self._secrets):
            reply = self._transport.get(_ALIASES, params={"target_namespace": namespace})
        return [str(entry["name"]) for entry in _object(reply.content)["namespace_aliases"]]

    def start_import(self, url: str, integration: str | None) -> str:
        """Have the service read files by itself; return its id of that.

        Raises:
            RefusedError: the service does not do so here.
        """
        with pinecone_errors("change", self._secrets):
            started = self._index.start_import(
                uri=url, error_mode="abort", integration_id=integration
            )
        return started.id

    def imports(self) -> list[ImportModel]:
        """All imports into the index, as far as they are listed."""
        with pinecone_errors("read", self._secrets):
            return list(self._index.list_imports())

    def import_state(self, import_id: str) -> ImportModel:
        """How far an import is."""
        with pinecone_errors("read", self._secrets):
            return self._index.describe_import(import_id)

    def close(self) -> None:
        """Let go of connections."""
        self._index.close()

    def _make_alias(self, alias: str, namespace: str) -> None:
        try:
            with pinecone_errors("change", self._secrets):
                self._transport.post(_ALIASES, json={"name": alias, "target_namespace": namespace})
        except RefusedError as error:
            said = reasons(error.__cause__)
            if "NAME_IN_USE_BY_NAMESPACE" in said:
                message = f"{alias!r} is a collection and cannot be an alias"
                raise RefusedError(message) from error
            if "ALIAS_ALREADY_EXISTS" not in said:
                raise
            # Somebody else has made it since.
            self._alias("PATCH", alias, {"target_namespace": namespace})

    def _alias(
        self, method: str, alias: str, body: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        path = f"{_ALIASES}/{quote(alias, safe='')}"
        with pinecone_errors("read" if method == "GET" else "change", self._secrets):
            if method == "GET":
                return _object(self._transport.get(path).content)
            return _object(self._transport.patch(path, json=body).content)


def _object(content: bytes) -> Mapping[str, Any]:
    try:
        reply = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise TransientError(f"a reply of Pinecone is not JSON: {error}", code="reply") from error
    if not isinstance(reply, dict):
        raise TransientError("a reply of Pinecone is not an object", code="reply")
    return reply
