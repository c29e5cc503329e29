"""Reading an index: the published version, its own model, its own prompt, through publications.

A reader follows the manifest. Every search uses one version from beginning to end, so that a
publication in the midst of many searches mixes nothing; a new version takes over once its model is
loaded, and the old one answers until then.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from embedmill.assembly import store_of, workspace_of
from embedmill.canary import CanaryLayer, embedded_canary, refuse_drift
from embedmill.closing import let_go
from embedmill.embedder import Embedder, Vectors
from embedmill.errors import EmbedmillError, RefusedError
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.payload import Filter, Scalar, conditions_of
from embedmill.settings import Settings
from embedmill.settings_file import load_settings
from embedmill.store_checks import LOST_COLLECTION
from embedmill.vector_store import Hit
from embedmill.version_embedder import embedder_for

log = logging.getLogger(__name__)
# How old the reader's knowledge of the manifest may be; a look costs a listing and two reads.
REFRESH_S = 5.0
# Providers whose embedder any number of threads may ask; a model in this process, and what other
# packages bring, takes one caller at a time.
_AT_ONCE = {"openai", "openai_compatible", "voyage", "cohere"}


@dataclass(frozen=True, slots=True)
class _View:
    """What one search uses: never parts of two."""

    version: IndexVersion
    embedder: Embedder


class IndexReader:
    """Searches the published version of an index, whichever that is at the time.

    A context manager; holds a model and a store. May be shared by threads.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        refresh_s: float = REFRESH_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Find the published version, open its store, load its model.

        Args:
            settings: of the index. A version that another model made is searched with that model.
            refresh_s: a publication is noticed after this many seconds at the latest; 0 looks at
                every search.
            clock: seconds.

        Raises:
            RefusedError: nothing is published yet.
            IndexLockedError: a run holds the embedded store.
        """
        self._settings = settings
        self._workspace = workspace_of(settings)
        self._manifest = Manifest(self._workspace, settings.index)
        self._refresh_s = refresh_s
        self._clock = clock
        self._looked = clock()
        self._looking = threading.Lock()
        self._embedding = threading.Lock()
        self._connecting = threading.Lock()
        self._connected: set[str] = set()
        self._loading: threading.Thread | None = None
        self._used: list[Embedder] = []
        state = self._manifest.read()
        published = state.published
        if published is None:
            raise _nothing_published(settings, state)
        self._store = store_of(settings)
        try:
            self._view = _View(published, self._load(published))
        except BaseException:
            self._store.close()
            raise

    @property
    def version(self) -> IndexVersion:
        """The version that is searched now."""
        return self._view.version

    def search(self, query: str, k: int = 10, where: Filter | None = None) -> list[Hit]:
        """The ``k`` chunks nearest to a query, best first.

        Args:
            query: text; the version's query prompt is put before it.
            k: how many.
            where: payload values that must be equal; ``metadata.KEY`` for a document's own.

        Raises:
            RefusedError: the query cannot be embedded (blank).
            TransientError: the provider or the store did not answer.
        """
        self._look()
        view = self._view
        try:
            return self._search(view, query, k, where)
        except RefusedError:
            # The collection may be gone because another version was published, and this one pruned;
            # somebody else may have looked for it since this search began.
            self.refresh()
            if self._view is view:
                raise
            return self._search(self._view, query, k, where)

    def for_tenant(self, key: str, value: Scalar) -> TenantReader:
        """A reader that sees one tenant's documents alone, whatever it is asked.

        Args:
            key: of the documents' metadata, without ``metadata.``.
            value: that it must have.
        """
        return TenantReader(self, {f"metadata.{key}": value})

    def refresh(self) -> bool:
        """Look now which version is published, and load its model; waits until it is ready.

        Returns:
            Whether another version is searched now.
        """
        with self._looking:
            self._looked = self._clock()
            published = self._published()
            if published is None or _same_build(published, self._view.version):
                return False
            self._take(published, self._embedder_of(published))
            return True

    def verify(self) -> None:
        """Prove that the model is the one that made the index; costs a few short texts.

        Raises:
            ModelDriftError: it is another one behind the same name.
            RefusedError: the version has no canary to compare with.
        """
        view = self._view
        then = CanaryLayer(self._workspace, self._settings.index).read(view.version.embedding)
        if then is None:
            raise RefusedError(
                f"{view.version.name} has no canary to compare with",
                code="no-contract",
                hint="make one with: embedmill evaluate SETTINGS",
            )
        with self._turn(view):
            now = embedded_canary(view.embedder, then.embedder, then.created)
        refuse_drift(then, now, self._settings.gates.min_canary_cosine)

    def close(self) -> None:
        """Let go of store and model."""
        loading = self._loading
        if loading is not None:
            loading.join()
        for embedder in {id(each): each for each in (*self._used, self._view.embedder)}.values():
            let_go(embedder)
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _search(self, view: _View, query: str, k: int, where: Filter | None) -> list[Hit]:
        vector = self._embedded(view, query)
        collection = view.version.collection
        if collection in self._connected:
            return self._found(collection, vector, k, where)
        # Stores connect and look at a collection when they are first asked, and take one thread at
        # a time for that; all that a search does afterwards may be done by many.
        with self._connecting:
            hits = self._found(collection, vector, k, where)
            self._connected.add(collection)
            return hits

    def _found(self, collection: str, vector: Vectors, k: int, where: Filter | None) -> list[Hit]:
        try:
            return list(self._store.search(collection, vector, k, where))
        except RefusedError as error:
            if error.code != "no-collection":
                raise
            raise RefusedError(str(error), code=error.code, hint=LOST_COLLECTION) from error

    def _embedded(self, view: _View, query: str) -> Vectors:
        if any("\ud800" <= char <= "\udfff" for char in query):
            raise RefusedError("the query cannot be embedded: it is not UTF-8", code="query")
        with self._turn(view):
            embedded = view.embedder.embed([query], "query")
        if embedded.failures:
            raise RefusedError(
                f"the query cannot be embedded: {embedded.failures[0]}", code="query"
            )
        vector: Vectors = embedded.vectors[0]
        return vector

    def _turn(self, view: _View) -> AbstractContextManager[object]:
        """Alone with the model, where it takes one caller at a time."""
        at_once = view.version.embedding.provider in _AT_ONCE
        return nullcontext() if at_once else self._embedding

    def _published(self) -> IndexVersion | None:
        return self._manifest.read().published

    def _look(self) -> None:
        """Notice a publication, when it is time; a search never waits for a model to load."""
        if self._clock() - self._looked < self._refresh_s:
            return
        # Whoever comes second goes on with what there is.
        if not self._looking.acquire(blocking=False):
            return
        try:
            self._looked = self._clock()
            self._follow()
        except EmbedmillError as error:
            log.warning("the manifest could not be read, %s goes on: %s", self.version.name, error)
        finally:
            self._looking.release()

    def _follow(self) -> None:
        published = self._published()
        if published is None or _same_build(published, self._view.version):
            return
        if published.embedding == self._view.version.embedding:
            self._take(published, self._view.embedder)
        elif self._loading is None or not self._loading.is_alive():
            self._loading = threading.Thread(
                target=self._load_beside, args=(published,), name="embedmill-reader", daemon=True
            )
            self._loading.start()

    def _load_beside(self, version: IndexVersion) -> None:
        """Load a model while the version before answers."""
        embedder = None
        try:
            embedder = self._load(version)
            with self._looking:
                published = self._published()
                # It may have been taken back meanwhile.
                if published is not None and _same_build(published, version):
                    self._take(version, embedder)
                    return
        except EmbedmillError as error:
            log.warning(
                "%s is published, but cannot be searched here; %s goes on: %s",
                version.name,
                self.version.name,
                error,
            )
        let_go(embedder)

    def _embedder_of(self, version: IndexVersion) -> Embedder:
        same = version.embedding == self._view.version.embedding
        return self._view.embedder if same else self._load(version)

    def _load(self, version: IndexVersion) -> Embedder:
        return embedder_for(self._settings, self._workspace, version)

    def _take(self, version: IndexVersion, embedder: Embedder) -> None:
        log.info("searching %s from now on, no longer %s", version.name, self.version.name)
        if hasattr(self._view.embedder, "close"):
            # Searches may still use it.
            self._used.append(self._view.embedder)
        self._view = _View(version, embedder)


def _same_build(version: IndexVersion, other: IndexVersion) -> bool:
    """Whether it is one version: a workspace that was made anew counts from 1 again."""
    mine, others = (
        (each.number, each.created, each.chunking, each.embedding) for each in (version, other)
    )
    return mine == others


def _nothing_published(settings: Settings, state: ManifestState) -> RefusedError:
    said = f"index {settings.index!r} has no published version in workspace"
    newest, hint = state.newest, "run to its end: embedmill ingest SETTINGS"
    if newest is not None and newest.state == "ready":
        hint = (
            f"{newest.name} is complete, and its gates did not let it through: see why with "
            f"embedmill versions show {newest.number} -c SETTINGS; to read it all the same: "
            f"embedmill publish {newest.number} --force -c SETTINGS"
        )
    return RefusedError(
        f"{said} {settings.workspace.url}",
        code="not-published",
        hint=hint,
    )


@dataclass(frozen=True, slots=True)
class TenantReader:
    """Searches an index under a condition that no caller can lift.

    Attributes:
        reader: of the whole index; closed by whoever opened it.
        condition: that every hit meets.
    """

    reader: IndexReader
    condition: Filter

    def search(self, query: str, k: int = 10, where: Filter | None = None) -> list[Hit]:
        """As :meth:`IndexReader.search`, within the condition.

        Raises:
            RefusedError: or ``where`` speaks of the same key.
        """
        both = self.condition.keys() & conditions_of(where).keys()
        if both:
            raise RefusedError(f"a tenant's reader decides on {min(both)!r} itself", code="filter")
        return self.reader.search(query, k, {**(where or {}), **self.condition})


def open_index(
    settings: Settings | Path | str,
    *,
    refresh_s: float = REFRESH_S,
) -> IndexReader:
    """Open an index for searching; see :class:`IndexReader`.

    Args:
        settings: of the index, or the path of its settings file.
        refresh_s: a publication is noticed after this many seconds at the latest.
    """
    if not isinstance(settings, Settings):
        settings = load_settings(Path(settings), [])
    return IndexReader(settings, refresh_s=refresh_s)
