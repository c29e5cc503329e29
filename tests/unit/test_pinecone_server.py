"""The fake Pinecone refuses what the real one refuses, whatever a client lets through."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

pytest.importorskip("msgspec")

from embedmill.testing.fault_plan import load_faults
from embedmill.testing.pinecone_fake_faults import Fault
from embedmill.testing.pinecone_server import PineconeServer, ServerOptions


class Caller:
    """Talks to the server as no well-behaved client would."""

    def __init__(self, url, key="any"):
        self.url = url
        self.headers = {"Api-Key": key, "X-Pinecone-Api-Version": "2026-07"}

    def __call__(self, method, path, body=None):
        content = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=content, headers=self.headers, method=method
        )
        # No proxy, whatever the environment says.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=10) as reply:
                return reply.status, json.loads(reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def upsert(self, *vectors, namespace="notes"):
        return self(
            "POST", "/data/docs/vectors/upsert", {"vectors": vectors, "namespace": namespace}
        )


@pytest.fixture
def server():
    with PineconeServer(options=ServerOptions(api_key="any")) as server:
        yield server


@pytest.fixture
def caller(server):
    caller = Caller(server.url)
    field = {"type": "dense_vector", "dimension": 2, "metric": "cosine"}
    caller("POST", "/indexes", {"name": "docs", "schema": {"fields": {"_values": field}}})
    assert caller.upsert({"id": "good", "values": [1, 0]}) == (200, {"upsertedCount": 1})
    return caller


@pytest.mark.parametrize(
    ("vector", "words"),
    [
        ({"id": "", "values": [1, 0]}, "non-empty"),
        ({"id": 7, "values": [1, 0]}, "strings"),
        ({"id": "ü", "values": [1, 0]}, "ASCII"),
        ({"id": "x" * 513, "values": [1, 0]}, "512"),
        ({"id": "a", "values": [1, 0, 0]}, "dimension 3"),
        ({"id": "a", "values": [0, 0]}, "only zeros"),
        ({"id": "a", "values": [1, None]}, "null"),
        ({"id": "a", "values": [1, True]}, "numbers"),
        ({"id": "a", "values": [1, 0], "metadata": {"a": None}}, "field 'a'"),
        ({"id": "a", "values": [1, 0], "metadata": {"a": {"b": 1}}}, "field 'a'"),
        ({"id": "a", "values": [1, 0], "metadata": {"a": [1]}}, "field 'a'"),
        ({"id": "a", "values": [1, 0], "metadata": {"$a": 1}}, "start with"),
        ({"id": "a", "values": [1, 0], "metadata": {"a": "x" * 41_000}}, "40960"),
        ({"id": "good", "values": [1, 0]}, "duplicate"),
    ],
)
def test_a_request_with_one_bad_record_is_refused_whole(server, caller, vector, words):
    status, said = caller.upsert({"id": "good", "values": [0, 1]}, vector)
    assert (status, words in said) == (400, True), said
    assert server.indexes["docs"].namespaces["notes"].written()["good"].values.tolist() == [1, 0]


def test_too_many_records_or_bytes_are_refused(caller):
    many = [{"id": str(at), "values": [1, 0]} for at in range(1001)]
    assert caller.upsert(*many)[0] == 400
    large = [{"id": str(at), "values": [1, 0], "metadata": {"a": "x" * 40_000}} for at in range(60)]
    status, said = caller.upsert(*large)
    assert (status, "too large" in said) == (400, True)


@pytest.mark.parametrize(
    "condition",
    [
        {"$foo": 1},
        {"a": {}},
        {"a": 1},
        {"a": {"$in": []}},
        {"a": {"$in": [True]}},
        {"a": {"$in": ["x"] * 10_001}},
        {"a": {"$eq": None}},
        {"a": {"$gt": "x"}},
        {"a": {"$like": "x"}},
        {"$or": []},
    ],
    ids=lambda condition: str(condition)[:30],
)
def test_what_is_no_filter_is_refused(caller, condition):
    query = {"topK": 1, "vector": [1, 0], "filter": condition}
    assert caller("POST", "/data/docs/query", query)[0] == 400


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/data/docs/query", {"topK": 10_001, "vector": [1, 0]}, 400),
        ("POST", "/data/docs/query", {"topK": 1, "vector": [1]}, 400),
        ("POST", "/data/docs/vectors/delete", {"ids": ["x"] * 1001, "namespace": "notes"}, 400),
        ("POST", "/data/docs/vectors/delete", {"ids": ["x"], "namespace": "absent"}, 404),
        ("GET", "/data/docs/vectors/list?limit=101&namespace=notes", None, 400),
        ("GET", "/data/docs/namespaces/absent", None, 404),
        ("POST", "/data/docs/namespaces", {"name": "notes"}, 409),
        ("POST", "/data/docs/namespaces", {"name": "__default__"}, 400),
        ("DELETE", "/data/docs/namespaces/absent", None, 404),
        ("POST", "/data/docs/describe_index_stats", {"filter": {"a": 1}}, 400),
        ("GET", "/data/absent/namespaces", None, 404),
        ("GET", "/indexes/absent", None, 404),
        ("POST", "/indexes", {"name": "docs"}, 409),
        ("POST", "/indexes", {"name": "Docs"}, 400),
        ("GET", "/nothing", None, 404),
    ],
)
def test_what_the_service_refuses_is_refused(caller, method, path, body, status):
    assert caller(method, path, body)[0] == status


def test_an_absent_namespace_reads_as_empty(caller):
    query = {"topK": 1, "vector": [1, 0], "namespace": "absent"}
    assert caller("POST", "/data/docs/query", query)[1]["matches"] == []
    fetched = caller("GET", "/data/docs/vectors/fetch?ids=good&namespace=absent")
    assert fetched[1]["vectors"] == {}


def test_an_alias_is_read_through_and_never_written_to(caller):
    made = caller(
        "POST", "/data/docs/namespace-aliases", {"name": "live", "target_namespace": "notes"}
    )
    assert made[0] == 200
    fetched = caller("GET", "/data/docs/vectors/fetch?ids=good&namespace=live")
    assert list(fetched[1]["vectors"]) == ["good"]
    status, said = caller.upsert({"id": "a", "values": [1, 0]}, namespace="live")
    assert (status, "NAME_IN_USE_BY_ALIAS" in said) == (409, True)
    status, said = caller("DELETE", "/data/docs/namespaces/notes")
    assert (status, "NAMESPACE_TARGETED_BY_ALIAS" in said) == (400, True)


def test_a_wrong_key_and_an_old_version_are_refused(server, caller):
    assert Caller(server.url, key="another")("GET", "/indexes") == (401, "Invalid API Key")
    caller.headers["X-Pinecone-Api-Version"] = "2025-10"
    assert caller("GET", "/data/docs/namespace-aliases")[0] == 400


def test_a_plan_with_an_unknown_deed_is_refused(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: vectors.upsert, do: explode}\n")
    with pytest.raises(ValueError, match="explode"):
        load_faults(plan, Fault)


def test_the_server_runs_by_itself_and_ends_on_a_signal(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: indexes.list, do: error, status: 503}\n")
    command = [sys.executable, "-m", "embedmill.testing.pinecone_server", "--faults", str(plan)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    try:
        caller = Caller(process.stdout.readline().strip())
        assert [caller("GET", "/indexes")[0] for _ in range(2)] == [503, 200]
    finally:
        process.terminate()
        process.stdout.close()
    assert process.wait(timeout=30) == 0
