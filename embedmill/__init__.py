"""embedmill: how documents become a versioned vector index; knows nothing of Ray.

For programs that search: ``from embedmill import open_index``. Importing the package loads nothing
else; the names below are looked up when they are used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embedmill.async_index_reader import AsyncIndexReader, AsyncTenantReader, open_index_async
    from embedmill.index_reader import IndexReader, TenantReader, open_index

__all__ = [
    "AsyncIndexReader",
    "AsyncTenantReader",
    "IndexReader",
    "TenantReader",
    "open_index",
    "open_index_async",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from embedmill import async_index_reader, index_reader

        return getattr(index_reader, name, None) or getattr(async_index_reader, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
