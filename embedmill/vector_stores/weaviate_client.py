"""A connection to a Weaviate server through its official client: one method per request.

Collections and aliases go by their names on the server here. Definitions of collections travel as
the JSON of the REST interface: the client's own models know only the options of their day.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import weaviate
from weaviate import WeaviateClient
from weaviate.classes.config import ConsistencyLevel
from weaviate.classes.init import AdditionalConfig, Auth, Timeout
from weaviate.collections import Collection as ClientCollection
from weaviate.connect.v4 import _ExpectedStatusCodes
from weaviate.exceptions import UnexpectedStatusCodeError
from weaviate.proto.v1 import base_pb2, batch_pb2

from embedmill.errors import OutcomeUnknownError, RefusedError, StopRunError
from embedmill.settings_file import resolve_secret
from embedmill.vector_stores.server_words import Effect, cleaned
from embedmill.vector_stores.weaviate_errors import server_errors
from embedmill.weaviate_settings import WeaviateSettings, addresses

_OLDEST = (1, 29)
_WITH_ALIASES = (1, 32)
# The client waits so long for a connection and for the first reply.
_INIT_S = 10
_LEVELS = {
    "one": (ConsistencyLevel.ONE, base_pb2.CONSISTENCY_LEVEL_ONE),
    "quorum": (ConsistencyLevel.QUORUM, base_pb2.CONSISTENCY_LEVEL_QUORUM),
    "all": (ConsistencyLevel.ALL, base_pb2.CONSISTENCY_LEVEL_ALL),
}
# Of one message, where a server does not say: the client's own.
_MESSAGE_BYTES = 104_858_000


class WeaviateConnection:
    """Requests to one server; connects when the first is made.

    Raises:
        SettingsError: the key's environment variable is not set.
    """

    def __init__(self, settings: WeaviateSettings) -> None:
        self._settings = settings
        self._secret = resolve_secret(settings.api_key) if settings.api_key else ""
        self._client: WeaviateClient | None = None
        self._closed = False
        self._version: tuple[int, int] = (0, 0)
        self._level, self._wire_level = _LEVELS[settings.consistency]
        self.message_bytes = _MESSAGE_BYTES

    @property
    def has_aliases(self) -> bool:
        """Whether the server has aliases of its own."""
        self._open()
        return self._version >= _WITH_ALIASES

    def errors(self, doing: str, effect: Effect) -> Any:  # noqa: ANN401, a context manager
        """See :func:`~embedmill.vector_stores.weaviate_errors.server_errors`."""
        return server_errors(doing, effect, self._secret)

    def cleaned(self, words: str) -> str:
        """Words of the server, short and without the key."""
        return cleaned(words, self._secret)

    def collection(self, class_name: str, tenant: str | None = None) -> ClientCollection[Any, Any]:
        """The client's own view of a collection, or of one tenant of it; nothing is asked."""
        used = self._open().collections.use(class_name).with_consistency_level(self._level)
        return used.with_tenant(tenant) if tenant is not None else used

    def schema(self) -> list[Mapping[str, Any]]:
        """Definitions of all collections."""
        with self.errors("listing the collections", "read"):
            reply = self._get("/schema")
            return cast("list[Mapping[str, Any]]", reply["classes"] or [])

    def definition(self, class_name: str) -> Mapping[str, Any] | None:
        """Definition of a collection; None when there is none of that name.

        Servers follow an alias here; what they give then has another name.
        """
        with self.errors(f"looking at {class_name!r}", "read"):
            try:
                found = self._get(f"/schema/{class_name}")
            except UnexpectedStatusCodeError as error:
                if error.status_code == 404:
                    return None
                raise
            return found if found["class"] == class_name else None

    def create(self, definition: Mapping[str, Any]) -> bool:
        """Create a collection; False when there is one of that name already."""
        name = definition["class"]
        with self.errors(f"creating {name!r}", "change"):
            try:
                self._open().collections.create_from_dict(dict(definition))
            except UnexpectedStatusCodeError as error:
                if error.status_code == 422 and "already exists" in str(error):
                    return False
                raise
        return True

    def add_property(self, class_name: str, definition: Mapping[str, Any]) -> None:
        """Add a property to a collection; objects that are there have no value for it."""
        with self.errors(f"adding property {definition['name']} to {class_name!r}", "change"):
            try:
                self._send("post", f"/schema/{class_name}/properties", definition)
            except UnexpectedStatusCodeError as error:
                # Another writer was faster; what it made is looked at afterwards.
                if "already" not in str(error):
                    raise

    def drop(self, class_name: str) -> None:
        """Delete a collection with all its objects; absent is no error."""
        with self.errors(f"dropping {class_name!r}", "change"):
            self._open().collections.delete(class_name)

    def shard_states(self, class_name: str) -> list[tuple[str, int]]:
        """Of each shard its status, and how many vectors wait to be indexed."""
        with self.errors(f"asking for the shards of {class_name!r}", "read"):
            shards = self._open().collections.use(class_name).config.get_shards()
            return [(shard.status.upper(), shard.vector_queue_size) for shard in shards]

    def put(self, class_name: str, objects: Sequence[batch_pb2.BatchObject]) -> dict[int, str]:
        """Write objects in one request; the server's words for each that it did not take."""
        connection = self._open()._connection  # noqa: SLF001, insert_many hides too much
        stub: Any = connection.grpc_stub
        request = batch_pb2.BatchObjectsRequest(objects=objects, consistency_level=self._wire_level)
        doing = f"writing to {class_name!r}"
        with self.errors(doing, "write"):
            reply = stub.BatchObjects(
                request, metadata=connection.grpc_headers(), timeout=self._settings.timeout_s
            )
        refused = {error.index: error.error for error in reply.errors}
        if len(refused) != len(reply.errors) or any(not 0 <= at < len(objects) for at in refused):
            raise OutcomeUnknownError(
                f"{doing}: the reply has errors of objects that were not sent", code="reply"
            )
        return refused

    def aliases(self) -> dict[str, str]:
        """Collection by alias."""
        client = self._open()
        with self.errors("listing the aliases", "read"):
            return {name: entry.collection for name, entry in client.alias.list_all().items()}

    def alias_target(self, alias: str) -> str | None:
        """The collection that an alias points at."""
        client = self._open()
        with self.errors(f"looking at alias {alias!r}", "read"):
            found = client.alias.get(alias_name=alias)
            return found.collection if found else None

    def point_alias(self, alias: str, class_name: str) -> None:
        """Make an alias, or move it in one step."""
        client = self._open()
        with self.errors(f"pointing alias {alias!r} at {class_name!r}", "change"):
            if client.alias.update(alias_name=alias, new_target_collection=class_name):
                return
            try:
                client.alias.create(alias_name=alias, target_collection=class_name)
            except UnexpectedStatusCodeError as error:
                if "already exists" not in str(error):
                    raise
                # Another process made it meanwhile.
                client.alias.update(alias_name=alias, new_target_collection=class_name)

    def close(self) -> None:
        """Close the connections."""
        self._closed = True
        if self._client is not None:
            self._client.close()
            self._client = None

    def _open(self) -> WeaviateClient:
        if self._closed:
            raise RefusedError("the store was closed")
        if self._client is None:
            with self.errors(f"connecting to {self._settings.url}", "read"):
                client = _connected(self._settings, self._secret)
                meta = client.get_meta()
            self._client = client
            self._version = _version_of(str(meta.get("version", "")))
            self.message_bytes = int(meta.get("grpcMaxMessageSize") or _MESSAGE_BYTES)
            if self._version < _OLDEST:
                self._client.close()
                self._client = None
                raise StopRunError(
                    f"the Weaviate server is version {meta.get('version')}; embedmill needs "
                    f"{_OLDEST[0]}.{_OLDEST[1]} or later",
                    code="server-version",
                )
        return self._client

    def _get(self, path: str) -> Any:  # noqa: ANN401, off the wire
        return self._send("get", path).json()

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401, the client's reply
        call: Callable[..., Any] = getattr(self._open()._connection, method)  # noqa: SLF001, see the module
        more = {"weaviate_object": dict(body)} if body is not None else {}
        return call(path=path, error_msg=path, status_codes=_ExpectedStatusCodes(200, path), **more)


def _connected(settings: WeaviateSettings, secret: str) -> WeaviateClient:
    http, grpc = addresses(settings)
    times = Timeout(init=_INIT_S, query=settings.timeout_s, insert=settings.timeout_s)
    return weaviate.connect_to_custom(
        http_host=http[0],
        http_port=http[1],
        http_secure=http[2],
        grpc_host=grpc[0],
        grpc_port=grpc[1],
        grpc_secure=grpc[2],
        auth_credentials=Auth.api_key(secret) if secret else None,
        additional_config=AdditionalConfig(timeout=times),
        # They ask the package index for the newest client, among others.
        skip_init_checks=True,
    )


def _version_of(text: str) -> tuple[int, int]:
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
