"""The pace of writes at the real SDKs: what a store refuses for the moment is sent again, alone."""

import pytest

pytest.importorskip("qdrant_client")
pytest.importorskip("pinecone")
pytest.importorskip("weaviate")

import pinecone_rig
import qdrant_rig
import weaviate_rig
from pinecone_rig import FakeClock

from embedmill.errors import OutcomeUnknownError, RateLimitedError, StopRunError
from embedmill.testing.counting_store_contract import a_batch, record_ids
from embedmill.throttle import Throttle


class Qdrant:
    route, deletes, tells_how_long = "points.upsert", "points.delete", True

    def __init__(self, monkeypatch):
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        self.rig = qdrant_rig.Rig()
        self.rig.server.__enter__()
        self.close = self.rig.close

    def filled(self, pace, **more):
        store = self.rig.store(records_per_request=5, pace=pace, **more)
        store.create_collection("notes", qdrant_rig.UNIT)
        return store

    def plan(self, at, do, *, call, **more):
        self.rig.plan(at, do, call=self.rig.calls(at) + call, **more)

    def written(self):
        return self.rig.ids()


class Pinecone:
    route, deletes, tells_how_long = "vectors.upsert", "vectors.delete", True

    def __init__(self, monkeypatch):
        self._rigs = pinecone_rig.rigs(monkeypatch)
        self.rig = self._rigs.__enter__()()
        self.close = lambda: self._rigs.__exit__(None, None, None)

    def filled(self, pace, **more):
        return self.rig.with_notes(pace=pace, **more)

    def plan(self, at, do, *, call, **more):
        done = self.rig.calls(at)
        self.rig.server.plan.add(pinecone_rig.Fault(at=at, do=do, call=done + call, **more))

    def written(self):
        return self.rig.written()


class Weaviate:
    # Over gRPC nothing says how long to wait.
    route, deletes, tells_how_long = "objects.batch", "objects.delete", False

    def __init__(self, monkeypatch):
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        weaviate_rig.quick_clients(monkeypatch)
        self.rig = weaviate_rig.Rig()
        self.rig.server.__enter__()
        self.close = self.rig.close

    def filled(self, pace, **more):
        store = self.rig.store(records_per_request=5, pace=pace, **more)
        store.create_collection("notes", weaviate_rig.UNIT)
        return store

    def plan(self, at, do, *, call, **more):
        fault = self.rig.server.plan.kind
        self.rig.server.plan.add(fault(at=at, do=do, call=self.rig.calls(at) + call, **more))

    def written(self):
        return as_text(self.rig.store().ids("notes"))


@pytest.fixture(params=[Qdrant, Pinecone, Weaviate])
def at(request, monkeypatch):
    at = request.param(monkeypatch)
    yield at
    at.close()


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def pace(clock):
    return Throttle(clock=clock, sleep=clock.sleep)


def as_text(ids):
    return {str(one) for one in ids}


def test_too_many_requests_cost_a_wait_and_not_what_was_confirmed(at, pace, clock):
    store = at.filled(pace)
    before = at.rig.calls(at.route)
    at.plan(at.route, "rate-limit", call=3, times=2, value="7")
    assert list(store.upsert("notes", a_batch(25))) == []
    assert at.rig.calls(at.route) - before == 5 + 2
    assert at.written() == as_text(record_ids(25))
    counts = pace.take_counts()
    assert (counts.requests, counts.rate_limited, counts.transient) == (7, 2, 2)
    assert (counts.unknown, counts.halvings) == (0, 2)
    assert clock.now >= (14 if at.tells_how_long else 0.75)
    assert counts.waited_s == pytest.approx(clock.now)


@pytest.mark.parametrize("do", ["drop-reply", "error", "html-502"])
def test_a_write_whose_end_is_not_known_is_made_again(at, pace, do):
    store = at.filled(pace)
    at.plan(at.route, do, call=2)
    assert list(store.upsert("notes", a_batch(25))) == []
    assert at.written() == as_text(record_ids(25))
    assert (pace.take_counts().unknown, pace.share < 1) == (1, True)


def test_a_reply_that_does_not_come_in_time_slows_down(at, pace):
    store = at.filled(pace, timeout_s=1)
    at.plan(at.route, "slow-reply", call=1, seconds=3600)
    assert list(store.upsert("notes", a_batch(25))) == []
    assert at.written() == as_text(record_ids(25))
    assert pace.take_counts().halvings == 1


def test_deletions_keep_the_pace_too(at, pace, clock):
    store = at.filled(pace)
    store.upsert("notes", a_batch(25))
    at.plan(at.deletes, "rate-limit", call=1, value="3")
    store.delete("notes", record_ids(20))
    assert at.written() == as_text(record_ids(25)[20:])
    assert clock.now >= (3 if at.tells_how_long else 0.25)


def test_a_store_that_stays_away_is_given_back_to_the_driver(at, pace):
    store = at.filled(pace)
    at.plan(at.route, "error", call=1, times=0)
    with pytest.raises(OutcomeUnknownError):
        store.upsert("notes", a_batch(25))
    assert pace.take_counts().requests == 5


@pytest.mark.parametrize("at", [Qdrant, Pinecone], indirect=True)
def test_a_long_wait_is_the_drivers(at, pace, clock):
    store = at.filled(pace)
    at.plan(at.route, "rate-limit", call=1, value="3600")
    with pytest.raises(RateLimitedError) as limited:
        store.upsert("notes", a_batch(25))
    assert (limited.value.retry_after, clock.now) == (3600, 0)


def test_a_bad_key_is_not_tried_again(at, pace):
    store = at.filled(pace)
    before = at.rig.calls(at.route)
    at.plan(at.route, "bad-key", call=1, times=0)
    with pytest.raises(StopRunError):
        store.upsert("notes", a_batch(25))
    assert at.rig.calls(at.route) == before + 1
