"""What the settings of servers have in common: keys that stay private, and keys with a type."""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address
from typing import TypeVar
from urllib.parse import urlsplit

from pydantic_core import PydanticCustomError

TypeT = TypeVar("TypeT", bound=str)


def refuse_key_in_the_clear(urls: Iterable[str]) -> None:
    """Refuse to send a key to another machine without encryption.

    Raises:
        PydanticCustomError: one of the addresses is of plain HTTP and not of this machine.
    """
    for url in urls:
        parts = urlsplit(url)
        if parts.scheme == "http" and not _is_this_machine(parts.hostname or ""):
            raise PydanticCustomError(
                "key_in_the_clear",
                "the key would travel to {host} in the clear; use https://, or set allow_http",
                {"host": parts.hostname},
            )


def typed_key(entry: str, known: Iterable[TypeT], without: TypeT) -> tuple[str, TypeT]:
    """Metadata key and type of an entry like ``year:integer``; ``without`` where none is given.

    A colon before anything else is one of the key's own.
    """
    key, sign, name = entry.rpartition(":")
    found = next((kind for kind in known if kind == name), None)
    return (key, found) if sign and key and found is not None else (entry, without)


def _is_this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
