"""Aliases on servers before 1.32, which have none: one object per alias in a collection of ours.

Writing an object replaces it in one step, so readers see the old target or the new one. Only
embedmill follows such a pointer: other programs must ask for the collection itself.
"""

from __future__ import annotations

from uuid import UUID, uuid5

from google.protobuf.struct_pb2 import Struct, Value  # type: ignore[import-untyped]
from weaviate.proto.v1 import batch_pb2

from embedmill.errors import OutcomeUnknownError
from embedmill.vector_stores.weaviate_client import WeaviateConnection

# Not one of our collections: they begin with "Embedmill_".
POINTERS = "EmbedmillPointers"
_NAMESPACE = UUID("5f0b1f4e-93f5-5d1c-8b1a-3c1f3a5e7d21")
_DEFINITION = {
    "class": POINTERS,
    "description": "Aliases of embedmill, for servers that have none.",
    "vectorizer": "none",
    "properties": [
        {"name": name, "dataType": ["text"], "tokenization": "field", "indexSearchable": False}
        for name in ("alias", "collection")
    ],
}


class Pointers:
    """Aliases as objects; names are those on the server."""

    def __init__(self, connection: WeaviateConnection) -> None:
        self._connection = connection

    def all(self) -> dict[str, str]:
        """Collection by alias."""
        if self._connection.definition(POINTERS) is None:
            return {}
        with self._connection.errors("listing the aliases", "read"):
            found = self._connection.collection(POINTERS).iterator()
            properties = [one.properties for one in found]
        return {str(one["alias"]): str(one["collection"]) for one in properties}

    def point(self, alias: str, class_name: str) -> None:
        """Make an alias, or move it in one step."""
        self._connection.create(_DEFINITION)
        fields = {"alias": Value(string_value=alias), "collection": Value(string_value=class_name)}
        pointer = batch_pb2.BatchObject(
            uuid=str(uuid5(_NAMESPACE, alias)),
            collection=POINTERS,
            properties=batch_pb2.BatchObject.Properties(non_ref_properties=Struct(fields=fields)),
        )
        refused = self._connection.put(POINTERS, [pointer])
        if refused:
            raise OutcomeUnknownError(
                f"pointing alias {alias!r} at {class_name!r}: "
                f"{self._connection.cleaned(refused[0])}",
                code="alias",
            )
