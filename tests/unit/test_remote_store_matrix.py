"""Stores over the network: every fault at every route, crossed with every moment of a death.

After a run again the store holds exactly the points that it should, and readers see them; what a
store confirmed and lost is found by the counts, and an audit puts it right first. A few of the
combinations run by default; ``EMBEDMILL_TEST_MATRIX=100`` runs more, and ``all`` runs them all.
"""

import itertools
import os
import random
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

pytest.importorskip("qdrant_client")
pytest.importorskip("pinecone")
pytest.importorskip("weaviate")

from embedmill.errors import EmbedmillError
from embedmill.pinecone_settings import PineconeSettings
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.testing import pinecone_server, qdrant_server, weaviate_server
from embedmill.throttle import Throttle, at_once
from embedmill.vector_stores.pinecone import PineconeStore
from embedmill.vector_stores.qdrant import QdrantStore
from embedmill.vector_stores.weaviate import WeaviateStore
from embedmill.vector_stores.weaviate_names import class_name
from embedmill.weaviate_settings import WeaviateSettings
from pipelines.audit import audit
from pipelines.run_options import RunOptions

FIRST = {f"d{number}": f"one two three four five {number}" for number in range(8)}
SECOND = {**dict.fromkeys(FIRST, "one two"), "d3": FIRST["d3"], "new": "six seven eight nine ten"}
del SECOND["d5"]
SAMPLE = 8


@dataclass(frozen=True)
class Case:
    """One combination.

    Attributes:
        route: of the server that something goes wrong at.
        deed: what goes wrong.
        call: the how manieth of the run.
        second: in the second run, else in the first.
        death: before the how manieth change the process dies; -1: it does not.
    """

    route: str
    deed: str
    call: int
    second: bool
    death: int


class Qdrant:
    faults = (
        ("points.upsert", ("drop", "drop-reply", "cut-reply", "error", "error-reply", "html-502")),
        ("points.upsert", ("rate-limit", "acknowledged", "wait-timeout", "partial")),
        ("points.upsert", ("silent-drop",)),
        ("points.delete", ("drop", "drop-reply", "cut-reply", "error", "rate-limit", "partial")),
        ("points.delete", ("acknowledged", "wait-timeout")),
        ("collections.create", ("drop", "drop-reply", "error")),
        ("index.create", ("drop", "drop-reply", "error")),
        ("aliases.update", ("drop", "drop-reply", "error")),
        ("points.count", ("drop", "error", "rate-limit")),
    )

    def __init__(self):
        self.server = qdrant_server.QdrantServer()
        self.fault = qdrant_server.Fault

    def store(self, pace):
        values = {"kind": "qdrant", "url": self.server.url, "records_per_request": 3}
        return QdrantStore(QdrantServerSettings.model_validate(values), pace=pace)

    def held(self, index):
        return {str(one) for one in self.server.ids(index.version.collection)}


class Pinecone:
    faults = (
        ("vectors.upsert", ("drop", "drop-reply", "cut-reply", "error", "html-200", "html-502")),
        ("vectors.upsert", ("rate-limit", "store-some", "store-none", "too-large")),
        ("vectors.delete", ("drop", "drop-reply", "error", "rate-limit")),
        ("indexes.create", ("drop", "drop-reply", "error")),
        ("namespaces.create", ("drop", "drop-reply", "error")),
        ("aliases.create", ("drop", "drop-reply", "error")),
        ("stats", ("drop", "error", "rate-limit")),
    )

    def __init__(self):
        self.server = pinecone_server.PineconeServer()
        self.fault = pinecone_server.Fault

    def store(self, pace):
        values = {
            "kind": "pinecone",
            "index": "docs",
            "api_key": "${FAKE_PINECONE_KEY}",
            "control_url": self.server.url,
            "records_per_request": 3,
            "count_settles_s": 0.0,
        }
        return PineconeStore(PineconeSettings.model_validate(values), pace=pace)

    def held(self, index):
        return self.server.written("docs", index.version.collection)


class Weaviate:
    faults = (
        ("objects.batch", ("drop", "drop-reply", "cut-reply", "error", "error-reply", "memory")),
        ("objects.batch", ("rate-limit", "unavailable", "not-leader", "replicas", "partial")),
        ("objects.batch", ("silent-drop", "too-large", "html-502", "wrong-index")),
        ("objects.delete", ("drop", "drop-reply", "error", "rate-limit", "partial", "unavailable")),
        ("schema.create", ("drop", "drop-reply", "error", "not-leader")),
        ("aliases.create", ("drop", "drop-reply", "error")),
        ("aggregate", ("drop", "error", "lag")),
    )

    def __init__(self):
        self.server = weaviate_server.WeaviateServer()
        self.fault = weaviate_server.Fault

    def store(self, pace):
        values = {
            "kind": "weaviate",
            "url": self.server.url,
            "grpc_url": self.server.grpc_url,
            "records_per_request": 3,
        }
        return WeaviateStore(WeaviateSettings.model_validate(values), pace=pace)

    def held(self, index):
        return {str(one) for one in self.server.ids(class_name(index.version.collection))}


CALLS, SECOND, DEATHS = (1, 2, 4), (False, True), (-1, 2, 5, 9, 14, 20)


def cases(service, seed):
    """Combinations of a service; a sample with as many different faults as it can hold."""
    faults = [(route, deed) for route, deeds in service.faults for deed in deeds]
    moments = list(itertools.product(CALLS, SECOND, DEATHS))
    asked = os.environ.get("EMBEDMILL_TEST_MATRIX", SAMPLE)
    if asked == "all":
        return [Case(*fault, *moment) for fault in faults for moment in moments]
    dice = random.Random(seed)
    rounds = -(-int(asked) // len(faults))
    chosen = [fault for _ in range(rounds) for fault in dice.sample(faults, len(faults))]
    return [Case(*fault, *dice.choice(moments)) for fault in chosen[: int(asked)]]


KINDS = (Qdrant, Pinecone, Weaviate)
MATRIX = [(kind, case) for seed, kind in enumerate(KINDS, 1) for case in cases(kind, seed)]


class DyingStore:
    """Dies with its process: at a change, before or right after it."""

    def __init__(self, real, change):
        self._real, self._change = real, change

    def __getattr__(self, name):
        call = getattr(self._real, name)
        if name not in {"create_collection", "upsert", "delete", "set_alias"}:
            return call

        def changing(*arguments):
            self._change()
            done = call(*arguments)
            self._change()
            return done

        return changing


@contextmanager
def dying(index, service, death):
    """A process that dies at its n-th change of store or workspace."""
    changes = itertools.count()

    def change(*_):
        if next(changes) == death:
            raise KeyboardInterrupt

    pace = Throttle(clock=index.clock, sleep=index.clock.sleep)
    index.wrappers["store"] = lambda _: DyingStore(service.store(pace), change)
    index.workspace.before_create = change
    yield
    index.workspace.before_create = lambda _: None


def live(index, service, texts, death):
    """One process that ingests; whether it came to its end."""
    with dying(index, service, death):
        try:
            index.ingest(texts)
        except KeyboardInterrupt:
            return False
        except EmbedmillError as error:
            lost = error.code == "counts-mismatch"
        else:
            return True
    if lost:
        put_right(index, service)
    return False


def put_right(index, service):
    """What a person does when the store has confirmed what it does not hold."""
    index.wrappers["store"] = lambda _: service.store(at_once)
    with index.seams():
        audit(index.settings, RunOptions(clock=index.clock, sleep=index.clock.sleep), repair=True)


@pytest.mark.parametrize(("kind", "case"), MATRIX, ids=lambda value: getattr(value, "__name__", ""))
@pytest.mark.usefixtures("plain_http")
def test_after_a_run_again_the_store_holds_what_it_should(small_index, monkeypatch, kind, case):
    monkeypatch.setenv("FAKE_PINECONE_KEY", "any")
    service, index = kind(), small_index(shard_count=2)
    with service.server:
        if case.second:
            assert live(index, service, FIRST, -1)
        texts = SECOND if case.second else FIRST
        call = service.server.plan.calls[case.route] + case.call
        service.server.plan.add(service.fault(at=case.route, do=case.deed, call=call))
        ended = live(index, service, texts, case.death)
        for _ in range(3):
            ended = ended or live(index, service, texts, -1)
        assert ended
        # What nobody met is not for those who look.
        service.server.plan.clear()
        check(index, service)
        assert live(index, service, SECOND, -1)
        check(index, service)


def check(index, service):
    """The store has the points of the ledger and no others, and readers see them."""
    expected = {str(one) for one in index.expected_ids()}
    assert service.held(index) == expected
    store = service.store(Throttle(clock=index.clock, sleep=index.clock.sleep))
    assert store.alias_target("small") == index.version.collection
    assert store.count("small") == len(expected)
    store.close()
