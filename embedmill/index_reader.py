"""Reading an index: the published version, its own model, its own prompt."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from embedmill.assembly import embedder_of, store_of, workspace_of
from embedmill.errors import RefusedError
from embedmill.manifest import IndexVersion, Manifest
from embedmill.settings import Settings
from embedmill.vector_store import Filter, Hit


class IndexReader:
    """Searches the published version of an index. A context manager; holds a model and a store.

    Attributes:
        version: that is searched.
    """

    def __init__(self, settings: Settings) -> None:
        """Find the published version, open its store, load its model.

        Raises:
            RefusedError: nothing is published yet.
            IndexLockedError: a run holds the embedded store.
        """
        state = Manifest(workspace_of(settings), settings.index).read()
        published = state.published
        if published is None:
            raise RefusedError(
                f"index {settings.index!r} has no published version in workspace "
                f"{settings.workspace.url}",
                code="not-published",
                hint="run: embedmill ingest with the same settings, to its end",
            )
        self.version: IndexVersion = published
        self._store = store_of(settings)
        try:
            self._embedder = embedder_of(settings, published.embedding)
        except BaseException:
            self._store.close()
            raise

    def search(self, query: str, k: int, where: Filter | None = None) -> list[Hit]:
        """The ``k`` chunks nearest to a query, best first.

        Args:
            query: text; the version's query prompt is put before it.
            k: how many.
            where: payload values that must be equal.

        Raises:
            RefusedError: the query cannot be embedded (blank).
        """
        embedded = self._embedder.embed([query], "query")
        if embedded.failures:
            raise RefusedError(f"the query cannot be embedded: {embedded.failures[0]}")
        return list(self._store.search(self.version.collection, embedded.vectors[0], k, where))

    def close(self) -> None:
        """Let go of the store."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_index(settings: Settings) -> IndexReader:
    """Open an index for searching; see :class:`IndexReader`."""
    return IndexReader(settings)
