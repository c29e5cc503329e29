"""The SDK's clients of Pinecone: the control plane, and the way to an index' data plane.

The SDK repeats what failed three times on its own, for up to a minute each, and tells nobody: a
slow write would look like a lost worker, and a rate limit would reach no budget. So it is told not
to. For the data plane it cannot be told, and its transport is replaced by one of its own kind.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from pinecone import Index, Pinecone, RetryConfig

# The transport of the SDK itself: the only way to turn its retries off, to read the headers of a
# delete, and to reach the routes of namespace aliases, for which 10.2 has no methods.
from pinecone._internal.config import PineconeConfig
from pinecone._internal.constants import DATA_PLANE_API_VERSION
from pinecone._internal.http_client import HTTPClient
from pinecone.models.indexes.index import IndexModel

from embedmill.errors import RefusedError, StopRunError, TransientError
from embedmill.pinecone_settings import PineconeSettings
from embedmill.recipe import Metric
from embedmill.settings_file import resolve_secret
from embedmill.vector_store import CollectionSpec
from embedmill.vector_stores.pinecone_errors import AbsentError, pinecone_errors

# The field of a schema that makes an index one of vectors with metadata, not of documents.
_VECTOR_FIELD = "_values"
_METRICS: dict[Metric, str] = {"cosine": "cosine", "dot": "dotproduct", "euclid": "euclidean"}
# Of a dense vector; Pinecone's operation limits.
_MAX_DIMENSION = 20_000
_POLL_S = 1.0
# Of an index; Pinecone's identifier limits.
_LONGEST_NAME = 45


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What the control plane says about an index.

    Attributes:
        host: of its data plane; empty while there is none.
        dimension: of its vectors; 0 when it is no index of dense vectors.
        metric: in Pinecone's words.
        ready: whether it takes requests.
        state: why not.
    """

    host: str
    dimension: int
    metric: str
    ready: bool
    state: str


class PineconeClient:
    """The control plane, for the index of the settings and those beside it.

    Raises:
        SettingsError: the key's variable is not set.
    """

    def __init__(
        self,
        settings: PineconeSettings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._sleep = sleep
        key = resolve_secret(settings.api_key)
        self.secrets = (key,)
        with pinecone_errors("read", self.secrets):
            self._control = Pinecone(
                api_key=key,
                host=settings.control_url,
                timeout=settings.timeout_s,
                retry_config=RetryConfig(max_retries=0),
            )

    def siblings(self) -> dict[str, IndexFacts]:
        """The settings' index and those beside it, as far as they exist and hold dense vectors."""
        with pinecone_errors("read", self.secrets):
            models = list(self._control.indexes.list())
        facts = {model.name: _facts_of(model) for model in models if self._is_ours(model.name)}
        return {name: found for name, found in facts.items() if found.dimension}

    def facts(self, name: str) -> IndexFacts | None:
        """What an index is, or None when there is none of that name."""
        try:
            with pinecone_errors("read", self.secrets):
                return _facts_of(self._control.indexes.describe(name))
        except AbsentError:
            return None

    def ready_for(self, spec: CollectionSpec) -> str:
        """Name of the index that takes such vectors: the settings' own where it does, else another.

        Raises:
            RefusedError: it does not exist and may not be created.
            TransientError: it is not ready in time.
            StopRunError: it will never be.
        """
        name = self._settings.index
        facts = self.facts(name)
        if facts is not None and not _fits(facts, spec):
            name = sibling_name(name, spec)
            facts = self.facts(name)
        if facts is None:
            self._create(name, spec)
            facts = self._facts_soon(name)
        self._check(name, facts, spec)
        deadline = self._clock() + self._settings.index_timeout_s
        while not facts.ready:
            self._wait(name, facts.state, deadline)
            facts = self._facts_soon(name)
        return name

    def connect(self, name: str) -> tuple[IndexFacts, Index, HTTPClient]:
        """A client of the data plane, and the transport that it uses; closing it closes both."""
        facts = self._facts_soon(name)
        own = self._settings.data_url if name == self._settings.index else None
        with pinecone_errors("read", self.secrets):
            index = Index(
                host=own or facts.host, api_key=self.secrets[0], timeout=self._settings.timeout_s
            )
        config = PineconeConfig(
            api_key=self.secrets[0],
            host=index.host,
            timeout=self._settings.timeout_s,
            retry_config=RetryConfig(max_retries=0),
        )
        transport = HTTPClient(config, DATA_PLANE_API_VERSION)
        index._http.close()  # noqa: SLF001 (no other way to a transport without retries)
        index._http = transport  # noqa: SLF001 (the same)
        return facts, index, transport

    def close(self) -> None:
        """Let go of connections."""
        self._control.close()

    def _create(self, name: str, spec: CollectionSpec) -> None:
        settings = self._settings
        if not settings.create_index:
            raise RefusedError(
                f"there is no Pinecone index {name!r}, and create_index is false",
                code="no-index",
                hint=f"create it with {_in_words(spec)}, or set store.create_index: true",
            )
        if spec.dimension > _MAX_DIMENSION:
            raise RefusedError(
                f"vectors of dimension {spec.dimension:,}: Pinecone takes {_MAX_DIMENSION:,}",
                code="dimension",
            )
        field = {
            "type": "dense_vector",
            "dimension": spec.dimension,
            "metric": _METRICS[spec.metric],
        }
        place = {"deployment_type": "managed", "cloud": settings.cloud, "region": settings.region}
        try:
            with pinecone_errors("change", self.secrets):
                self._control.indexes.create(
                    name=name,
                    schema={"fields": {_VECTOR_FIELD: field}},
                    deployment=place,
                    timeout=-1,
                )
        except RefusedError:
            # Another writer was faster; what it made is checked like any other.
            if self.facts(name) is None:
                raise

    def _facts_soon(self, name: str) -> IndexFacts:
        facts = self.facts(name)
        if facts is None:
            raise TransientError(
                f"the Pinecone index {name!r} was created and is not there",
                code="index-not-ready",
            )
        return facts

    def _is_ours(self, name: str) -> bool:
        own = self._settings.index
        parts = name.rsplit("-", 2)
        if name == own or len(parts) < 3 or not parts[1].isdigit():
            return name == own
        return any(
            name == sibling_name(own, CollectionSpec(int(parts[1]), metric, normalised=False))
            for metric in _METRICS
        )

    def _check(self, name: str, facts: IndexFacts, spec: CollectionSpec) -> None:
        if _fits(facts, spec):
            return
        what = f"dimension {facts.dimension} and metric {facts.metric}"
        if not facts.dimension:
            what = "a schema that is not one of dense vectors with metadata"
        raise RefusedError(
            f"the Pinecone index {name!r} has {what}, and is now asked for "
            f"{_in_words(spec)}; an index never changes",
            code="spec-mismatch",
            hint="delete it, or give store.index another name",
        )

    def _wait(self, name: str, state: str, deadline: float) -> None:
        if state in {"InitializationFailed", "Terminating", "Disabled"}:
            raise StopRunError(f"the Pinecone index {name!r} is in state {state}", code="index")
        if self._clock() >= deadline:
            raise TransientError(
                f"the Pinecone index {name!r} is not ready after "
                f"{self._settings.index_timeout_s:g} s, it is in state {state}",
                code="index-not-ready",
            )
        self._sleep(_POLL_S)


def _in_words(spec: CollectionSpec) -> str:
    return f"dimension {spec.dimension} and metric {_METRICS[spec.metric]}"


def sibling_name(index: str, spec: CollectionSpec) -> str:
    """Name of the index beside ``index`` that takes such vectors."""
    ending = f"-{spec.dimension}-{_METRICS[spec.metric]}"
    return index[: _LONGEST_NAME - len(ending)].rstrip("-") + ending


def _fits(facts: IndexFacts, spec: CollectionSpec) -> bool:
    return (facts.dimension, facts.metric) == (spec.dimension, _METRICS[spec.metric])


def _facts_of(model: IndexModel) -> IndexFacts:
    field = model.schema.fields.get(_VECTOR_FIELD) if model.schema else None
    return IndexFacts(
        host=model.host or "",
        dimension=getattr(field, "dimension", None) or 0,
        metric=getattr(field, "metric", None) or "",
        ready=model.status.ready,
        state=model.status.state,
    )
