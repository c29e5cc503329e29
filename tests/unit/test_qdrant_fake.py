"""The fake Qdrant server, without a client: what it takes, what it refuses, its command."""

import json
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from embedmill.testing.fault_plan import FaultPlan, load_faults
from embedmill.testing.qdrant_fake_faults import Fault
from embedmill.testing.qdrant_fake_filters import matches, parsed_path, shown_path
from embedmill.testing.qdrant_fake_points import Points, point_id
from embedmill.testing.qdrant_fake_replies import ServerError
from embedmill.testing.qdrant_server import QdrantServer, ServerOptions

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
ONE = "11111111-1111-1111-1111-111111111111"


def ask(server, method, path, body=None, **headers):
    content = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(server.url + path, content, headers, method=method)
    try:
        with OPENER.open(request, timeout=20) as reply:
            return reply.status, json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.fixture
def server():
    with QdrantServer() as server:
        server.state.create("notes", {"vectors": {"size": 2, "distance": "Cosine"}})
        yield server


@pytest.mark.parametrize("value", [0, 2**64 - 1, ONE, ONE.replace("-", ""), f"urn:uuid:{ONE}"])
def test_ids_are_unsigned_numbers_and_uuids_in_any_spelling(value):
    assert point_id(value) in {0, 2**64 - 1, ONE}


@pytest.mark.parametrize("value", [-1, 2**64, 1.0, True, "docs/a.md", "", None, [1]])
def test_other_ids_are_refused(value):
    with pytest.raises(ServerError) as refusal:
        point_id(value)
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    "vector", [[1.0], [1.0, 2.0, 3.0], [1.0, None], [1.0, "x"], None, {"dense": [1.0, 2.0]}]
)
def test_one_bad_vector_refuses_the_whole_batch(server, vector):
    body = {"batch": {"ids": [1, 2], "vectors": [[1.0, 0.0], vector]}}
    status, reply = ask(server, "PUT", "/collections/notes/points?wait=true", body)
    assert status == 400
    assert reply["status"]["error"]
    assert server.ids("notes") == set()


def test_points_come_as_a_batch_or_one_by_one_and_the_last_of_an_id_counts(server):
    points = [{"id": 1, "vector": [1, 0]}, {"id": 1, "vector": [0, 1], "payload": {"a": 1}}]
    _, reply = ask(server, "PUT", "/collections/notes/points?wait=true", {"points": points})
    assert reply["result"]["status"] == "completed"
    _, reply = ask(server, "PUT", "/collections/notes/points", {"points": points})
    assert reply["result"]["status"] == "acknowledged"
    _, reply = ask(server, "POST", "/collections/notes/points", {"ids": [1], "with_vector": True})
    assert reply["result"] == [{"id": 1, "payload": {"a": 1}, "vector": [0.0, 1.0]}]


def test_pages_follow_the_ids_numbers_first(server):
    ids = [ONE, 7, 3, "00000000-0000-0000-0000-000000000001"]
    body = {"batch": {"ids": ids, "vectors": [[1, 0]] * 4}}
    ask(server, "PUT", "/collections/notes/points?wait=true", body)
    seen, offset = [], None
    for _ in range(4):
        page = {"limit": 1, "offset": offset}
        _, reply = ask(server, "POST", "/collections/notes/points/scroll", page)
        seen += [point["id"] for point in reply["result"]["points"]]
        offset = reply["result"]["next_page_offset"]
    assert (seen, offset) == ([3, 7, ids[3], ONE], None)


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("PUT", "/collections/notes", {"vectors": {"size": 2, "distance": "Dot"}}, 409),
        ("PUT", "/collections/more", {"vectors": {"size": 0, "distance": "Dot"}}, 422),
        ("PUT", "/collections/more", {"vectors": {"size": 2, "distance": "L1"}}, 400),
        ("PUT", "/collections/more", {}, 400),
        ("GET", "/collections/absent", None, 404),
        ("POST", "/collections/absent/points/count", {}, 404),
        ("PUT", "/collections/notes/points", {"points": []}, 400),
        ("PUT", "/collections/notes/points", {"batch": {"ids": [1], "vectors": []}}, 422),
        ("PUT", "/collections/notes/index", {"field_name": "a..b", "field_schema": "bool"}, 400),
        ("PUT", "/collections/notes/index", {"field_name": "a", "field_schema": "blob"}, 400),
        ("POST", "/collections/notes/nothing", {}, 404),
    ],
)
def test_what_the_real_server_refuses_it_refuses(server, method, path, body, status):
    assert ask(server, method, path, body)[0] == status


def test_a_body_over_32_mebibytes_is_refused_like_the_real_server_does(server):
    body = {"batch": {"ids": [1], "vectors": [[1, 0]], "payloads": [{"text": "x" * 2**25}]}}
    status, reply = ask(server, "PUT", "/collections/notes/points", body)
    assert status == 400
    assert "larger than allowed (limit: 33554432 bytes)" in reply["status"]["error"]


def test_an_alias_never_shares_the_name_of_a_collection(server):
    def act(**action):
        return ask(server, "POST", "/collections/aliases", {"actions": [action]})[0]

    live = {"alias_name": "live", "collection_name": "notes"}
    assert act(create_alias={"alias_name": "notes", "collection_name": "notes"}) == 409
    assert act(create_alias={"alias_name": "live", "collection_name": "absent"}) == 404
    assert act(create_alias=live) == 200
    assert (
        ask(server, "PUT", "/collections/live", {"vectors": {"size": 2, "distance": "Dot"}})[0]
        == 400
    )
    assert ask(server, "POST", "/collections/live/points/count", {})[1]["result"] == {"count": 0}
    assert ask(server, "DELETE", "/collections/notes")[1]["result"] is True
    assert ask(server, "GET", "/aliases")[1]["result"] == {"aliases": []}


def test_actions_on_aliases_before_a_refused_one_stay_done(server):
    live = {"alias_name": "live", "collection_name": "notes"}
    lost = [
        {"delete_alias": {"alias_name": "live"}},
        {"create_alias": {"alias_name": "live", "collection_name": "absent"}},
    ]
    ask(server, "POST", "/collections/aliases", {"actions": [{"create_alias": live}]})
    assert ask(server, "POST", "/collections/aliases", {"actions": lost})[0] == 404
    assert server.state.aliases == {}


def test_keys_are_asked_for(server):
    with QdrantServer(options=ServerOptions(api_key="right", read_key="eyes")) as guarded:
        made = {"vectors": {"size": 2, "distance": "Dot"}}
        assert ask(guarded, "GET", "/")[0] == 200
        assert ask(guarded, "GET", "/collections")[0] == 401
        assert ask(guarded, "GET", "/collections", **{"api-key": "wrong"})[0] == 401
        assert ask(guarded, "PUT", "/collections/c", made, **{"api-key": "eyes"})[0] == 403
        assert ask(guarded, "PUT", "/collections/c", made, **{"api-key": "right"})[0] == 200
        assert ask(guarded, "GET", "/collections", authorization="Bearer eyes")[0] == 200


@pytest.mark.parametrize(
    ("text", "path"),
    [("a", ("a",)), ("a.b", ("a", "b")), ('"a.b".c', ("a.b", "c")), ('a."b c"', ("a", "b c"))],
)
def test_paths_are_read_and_written_back(text, path):
    assert parsed_path(text) == path
    assert shown_path(path) == text


@pytest.mark.parametrize("text", ["", ".", "a.", "a b", '"a', 'a"b"', None])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ServerError):
        parsed_path(text)


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ({"key": "n", "match": {"value": 3}}, True),
        ({"key": "n", "match": {"value": True}}, False),
        ({"key": "t", "match": {"any": ["x", "b"]}}, True),
        ({"key": "m.k", "match": {"value": "v"}}, True),
        ({"key": "n", "range": {"gte": 3.0, "lte": 3.0}}, True),
        ({"key": "f", "range": {"gte": 1.0, "lte": 1.0}}, False),
        ({"should": []}, True),
        ({"must": [{"key": "n", "match": {"value": 4}}]}, False),
        ({"must_not": [{"key": "n", "match": {"value": 4}}]}, True),
    ],
    ids=str,
)
def test_conditions_are_met_as_the_real_server_meets_them(condition, met):
    payload = {"n": 3, "f": True, "t": ["a", "b"], "m": {"k": "v"}}
    assert matches(payload, condition) is met


@pytest.mark.parametrize(
    "condition", [{"key": "n"}, {"key": "n", "match": {"prefix": "x"}}, {"musn't": []}, 3]
)
def test_conditions_that_it_does_not_know_are_refused(condition):
    with pytest.raises(ServerError):
        matches({"n": 3}, condition)


def test_a_search_compares_with_every_point():
    points = Points(2, "Euclid")
    points.put(points.parsed({"batch": {"ids": [1, 2, 3], "vectors": [[0, 0], [3, 4], [6, 8]]}}))
    assert [(p.id, s) for p, s in points.nearest([0, 0], 2, None)] == [(1, 0.0), (2, 5.0)]
    assert Points(2, "Dot").nearest([1, 0], 5, None) == []


def test_a_fault_happens_to_the_calls_that_it_names():
    plan = FaultPlan(Fault, [Fault(at="points.upsert", do="drop", call=2, times=2)])
    hit = [bool(plan.next_of("points.upsert")) for _ in range(4)]
    assert hit == [False, True, True, False]
    assert plan.next_of("points.count") == []


@pytest.mark.parametrize("text", ["- {at: points.upsert}", "- {at: no, do: drop}", "a: [", "- 1"])
def test_a_plan_that_says_nothing_is_refused_with_its_path(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"plan\.yaml"):
        load_faults(path, Fault)


def test_the_command_serves_by_plan_until_it_is_ended(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("- {at: collections.list, do: error, value: '503'}\n")
    command = [sys.executable, "-m", "embedmill.testing.qdrant_server", "--faults", str(plan)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
        try:
            address = type("Address", (), {"url": served.stdout.readline().strip()})
            assert ask(address, "GET", "/collections")[0] == 503
            assert ask(address, "GET", "/collections")[1]["result"] == {"collections": []}
        finally:
            served.terminate()
        assert served.wait(60) == 0
