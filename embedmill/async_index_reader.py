"""Searching an index from asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from embedmill.index_reader import REFRESH_S, IndexReader, TenantReader, open_index
from embedmill.manifest import IndexVersion
from embedmill.payload import Filter, Scalar
from embedmill.settings import Settings
from embedmill.vector_store import Hit


class AsyncIndexReader:
    """An :class:`IndexReader` for asyncio: searches run in threads, none blocks the loop."""

    def __init__(self, reader: IndexReader) -> None:
        self._reader = reader

    @property
    def version(self) -> IndexVersion:
        """The version that is searched now."""
        return self._reader.version

    async def search(self, query: str, k: int = 10, where: Filter | None = None) -> list[Hit]:
        """See :meth:`IndexReader.search`."""
        return await asyncio.to_thread(self._reader.search, query, k, where)

    def for_tenant(self, key: str, value: Scalar) -> AsyncTenantReader:
        """See :meth:`IndexReader.for_tenant`."""
        return AsyncTenantReader(self._reader.for_tenant(key, value))

    async def verify(self) -> None:
        """See :meth:`IndexReader.verify`."""
        await asyncio.to_thread(self._reader.verify)

    async def refresh(self) -> bool:
        """See :meth:`IndexReader.refresh`."""
        return await asyncio.to_thread(self._reader.refresh)

    async def close(self) -> None:
        """See :meth:`IndexReader.close`."""
        await asyncio.to_thread(self._reader.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


@dataclass(frozen=True, slots=True)
class AsyncTenantReader:
    """A :class:`TenantReader` for asyncio.

    Attributes:
        reader: that searches.
    """

    reader: TenantReader

    async def search(self, query: str, k: int = 10, where: Filter | None = None) -> list[Hit]:
        """See :meth:`TenantReader.search`."""
        return await asyncio.to_thread(self.reader.search, query, k, where)


class Opening:
    """A reader that is about to be opened: to be awaited, or to be entered.

    ``async with open_index_async("my.yaml") as index:`` closes it at the end of the block; after
    ``index = await open_index_async("my.yaml")`` whoever holds it does.
    """

    def __init__(self, opened: Callable[[], Awaitable[AsyncIndexReader]]) -> None:
        self._opened = opened
        self._reader: AsyncIndexReader | None = None

    def __await__(self) -> Generator[Any, None, AsyncIndexReader]:
        return self._opened().__await__()

    async def __aenter__(self) -> AsyncIndexReader:
        self._reader = await self
        return self._reader

    async def __aexit__(self, *_: object) -> None:
        assert self._reader is not None
        await self._reader.close()


def open_index_async(settings: Settings | Path | str, *, refresh_s: float = REFRESH_S) -> Opening:
    """:func:`open_index` for asyncio; the model is loaded in a thread."""

    async def opened() -> AsyncIndexReader:
        reader = await asyncio.to_thread(open_index, settings, refresh_s=refresh_s)
        return AsyncIndexReader(reader)

    return Opening(opened)
