"""The fake Pinecone's control plane, namespaces and aliases."""

from __future__ import annotations

import re
from typing import Any

from embedmill.testing.pinecone_fake_index import FakeIndex, Namespace, Project
from embedmill.testing.pinecone_fake_replies import control_refusal, refusal
from embedmill.testing.pinecone_fake_vectors import Done, Query, paged

_INDEX_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?")
# Printable ASCII without space and / ? # % & = \ ; +
_ALIAS_NAME = re.compile(r"[!-~]{1,512}")
_ALIAS_REFUSED = set("/?#%&=\\;+")
_METRICS = {"cosine", "dotproduct", "euclidean"}
_MAX_ALIASES = 1000
# The fake has no clock of its own for these.
_TIME = "2026-11-01T12:00:00Z"


def create_index(project: Project, body: Any, url: str) -> Done:  # noqa: ANN401 (JSON)
    """Create an index of vectors; other schemas are not needed here."""
    name = body.get("name", "")
    if not _INDEX_NAME.fullmatch(name):
        raise control_refusal(400, "INVALID_ARGUMENT", f"Invalid index name {name!r}")
    if name in project.indexes:
        raise control_refusal(409, "ALREADY_EXISTS", "Resource already exists")
    if len(project.indexes) >= project.options.most_indexes:
        raise control_refusal(
            403, "QUOTA_EXCEEDED", "You've reached the max serverless indexes allowed in project"
        )
    field = (body.get("schema") or {}).get("fields", {}).get("_values", {})
    dimension = field.get("dimension", 0)
    if field.get("metric") not in _METRICS or not 1 <= dimension <= 20_000:
        raise control_refusal(400, "INVALID_ARGUMENT", "Invalid schema")
    index = FakeIndex(name, field, body.get("deployment") or {}, project.options)
    project.indexes[name] = index
    return Done(_described(project, index, url), status=201)


def list_indexes(project: Project, url: str) -> Done:
    """All indexes."""
    return Done({"indexes": [_described(project, one, url) for one in project.indexes.values()]})


def get_index(project: Project, name: str, url: str) -> Done:
    """One index; the more often it is looked at, the readier."""
    index = _index(project, name)
    index.looks += 1
    return Done(_described(project, index, url))


def delete_index(project: Project, name: str) -> Done:
    """Delete an index with all that is in it."""
    project.indexes.pop(_index(project, name).name)
    return Done({}, status=202)


def create_namespace(index: FakeIndex, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Create an empty namespace."""
    name = body.get("name", "")
    if not name or not name.isascii() or "\0" in name or len(name) > 512 or name == "__default__":
        raise refusal("Invalid namespace name")
    if name in index.aliases:
        raise refusal(f"{name!r} is an alias", 409, reason="NAME_IN_USE_BY_ALIAS")
    if name in index.namespaces:
        raise refusal(f"Namespace {name!r} already exists", 409)
    index.namespaces[name] = Namespace(index.options)
    return Done(_namespace(index, name))


def list_namespaces(index: FakeIndex, query: Query) -> Done:
    """One page of namespaces."""
    prefix = query.get("prefix", [""])[0]
    names = sorted(name for name in index.namespaces if name.startswith(prefix))
    page, more = paged(names, query)
    described = [_namespace(index, name) for name in page]
    return Done({"namespaces": described, "total_count": len(names)} | more)


def get_namespace(index: FakeIndex, name: str) -> Done:
    """One namespace."""
    _refuse_alias(index, name)
    if name not in index.namespaces:
        raise refusal("Namespace not found", 404)
    return Done(_namespace(index, name))


def delete_namespace(index: FakeIndex, name: str) -> Done:
    """Delete a namespace, unless an alias points at it."""
    _refuse_alias(index, name)
    if name not in index.namespaces:
        raise refusal("Namespace not found", 404)
    if name in index.aliases.values():
        message = f"Namespace {name!r} is the target of an alias"
        raise refusal(message, reason="NAMESPACE_TARGETED_BY_ALIAS")
    index.namespaces.pop(name)
    return Done({})


def create_alias(index: FakeIndex, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Make an alias."""
    name, target = _alias_name(body.get("name", "")), _target(index, body)
    if name in index.aliases:
        metadata = {"target_namespace": index.aliases[name]}
        message = f"Alias {name!r} already exists"
        raise refusal(message, 409, reason="ALIAS_ALREADY_EXISTS", metadata=metadata)
    if name in index.namespaces:
        raise refusal(f"{name!r} is a namespace", 409, reason="NAME_IN_USE_BY_NAMESPACE")
    if len(index.aliases) >= _MAX_ALIASES:
        raise refusal("Too many aliases", reason="ALIASES_PER_INDEX_EXCEEDED")
    index.aliases[name] = target
    return Done(_alias(index, name))


def list_aliases(index: FakeIndex, query: Query) -> Done:
    """One page of aliases."""
    if set(query) - {"limit", "paginationToken", "prefix", "target_namespace"}:
        raise refusal("Unknown query parameter")
    prefix, target = query.get("prefix", [""])[0], query.get("target_namespace")
    names = sorted(
        name
        for name, to in index.aliases.items()
        if name.startswith(prefix) and (target is None or to == target[0])
    )
    page, more = paged(names, query)
    described = [_alias(index, name) for name in page]
    return Done({"namespace_aliases": described, "total_count": len(names)} | more)


def get_alias(index: FakeIndex, name: str) -> Done:
    """One alias."""
    return Done(_alias(index, _known_alias(index, name)))


def repoint_alias(index: FakeIndex, name: str, body: Any) -> Done:  # noqa: ANN401 (JSON)
    """Point an alias elsewhere."""
    _known_alias(index, name)
    index.aliases[name] = _target(index, body)
    return Done(_alias(index, name))


def delete_alias(index: FakeIndex, name: str) -> Done:
    """Remove an alias; its target stays."""
    index.aliases.pop(_known_alias(index, name))
    return Done({})


def _index(project: Project, name: str) -> FakeIndex:
    if name not in project.indexes:
        raise control_refusal(404, "NOT_FOUND", f"Resource {name} not found")
    return project.indexes[name]


def _described(project: Project, index: FakeIndex, url: str) -> dict[str, Any]:
    ready = index.looks > project.options.ready_after
    return {
        "name": index.name,
        "schema": {"fields": {"_values": index.vectors}},
        "deployment": index.deployment,
        "deletion_protection": "disabled",
        "host": f"{url}/data/{index.name}",
        "status": {"ready": ready, "state": "Ready" if ready else "Initializing"},
        "tags": None,
    }


def _namespace(index: FakeIndex, name: str) -> dict[str, Any]:
    # A number as text, as the service has it.
    return {"name": name, "record_count": str(len(index.namespaces[name].counted().records))}


def _alias(index: FakeIndex, name: str) -> dict[str, Any]:
    target = index.aliases[name]
    return {
        "name": name,
        "target_namespace": target,
        "created_at": _TIME,
        "updated_at": _TIME,
    }


def _refuse_alias(index: FakeIndex, name: str) -> None:
    if name in index.aliases:
        raise refusal(f"{name!r} is an alias", reason="NAMESPACE_OPERATION_ON_ALIAS")


def _alias_name(name: str) -> str:
    if not _ALIAS_NAME.fullmatch(name) or _ALIAS_REFUSED & set(name) or name == "__default__":
        raise refusal("Invalid alias name", reason="ALIAS_NAME_INVALID")
    return name


def _known_alias(index: FakeIndex, name: str) -> str:
    if _alias_name(name) not in index.aliases:
        raise refusal(f"Alias {name!r} not found", 404, reason="ALIAS_NOT_FOUND")
    return name


def _target(index: FakeIndex, body: Any) -> str:  # noqa: ANN401 (JSON)
    target = body.get("target_namespace")
    if not target:
        raise refusal("A target is required", reason="TARGET_NAMESPACE_REQUIRED")
    if target in index.aliases:
        raise refusal("The target is an alias", reason="TARGET_IS_ALIAS")
    if target not in index.namespaces:
        raise refusal("The target does not exist", reason="TARGET_NAMESPACE_NOT_FOUND")
    return str(target)
