"""The frame of the fake servers, around an API that repeats what it is sent."""

import http.client
import threading
from typing import Literal

import pytest

from embedmill.testing.fake_api import RefusedRequest, Reply, RouteTable
from embedmill.testing.fake_server import FakeServer
from embedmill.testing.fault_plan import CommonDeed, FaultPlan, PlannedFault, load_faults


class Fault(PlannedFault):
    at: Literal["say", "look"]
    do: Literal[CommonDeed, "forbid"]


class Repeating:
    """Repeats bodies; remembers what it was asked to do."""

    request_id_header = "x-id"
    routes = RouteTable(("POST", "/say/([^/]+)", "say"), ("GET", "/look", "look"))

    def __init__(self, *faults):
        self.plan = FaultPlan(Fault, faults)
        self.done = []
        self.worked = threading.Event()

    def route_of(self, request):
        found = self.routes.find(request.method, request.path)
        if found is None:
            raise RefusedRequest(Reply.of_json({"no": request.path}, 404))
        return found

    def refuse(self, fault, request):
        if fault.do == "forbid":
            raise RefusedRequest(Reply.of_json({}, 403, {"x-why": fault.value}))

    def answer(self, call):
        self.done.append((call.route, call.name, call.request.parameters))
        self.worked.set()
        if call.route == "look":
            return Reply(content=iter([b"ab", b"cd"]), stated=6)
        return Reply(content=call.request.body, content_type="text/plain")


class Client:
    """One connection."""

    def __init__(self, server):
        self.connection = http.client.HTTPConnection("127.0.0.1", server._port, timeout=20)

    def __call__(self, method, path, body=None):
        self.connection.request(method, path, body)
        reply = self.connection.getresponse()
        return reply.status, reply.read(), reply.headers


@pytest.fixture
def serve():
    opened = []

    def begin(*faults):
        api = Repeating(*faults)
        server = FakeServer(api).__enter__()
        client = Client(server)
        opened.append((server, client))
        return server, api, client

    yield begin
    for server, client in opened:
        client.connection.close()
        server.__exit__(None, None, None)


def test_open_parts_are_unquoted_and_every_reply_has_its_number(serve):
    server, api, client = serve()
    status, content, headers = client("POST", "/say/a%2Fb?x=1&x=2&y=", b"hello")
    assert (status, content, headers["x-id"]) == (200, b"hello", "req_000001")
    assert api.done == [("say", "a/b", {"x": "2"})]
    status, _, headers = client("GET", "/nowhere")
    assert (status, headers["x-id"]) == (404, "req_000002")
    assert server.requests == [("POST", "/say/a%2Fb?x=1&x=2&y="), ("GET", "/nowhere")]
    assert server.plan.calls == {"say": 1}


@pytest.mark.parametrize(
    ("deed", "worked"), [("drop", False), ("drop-reply", True), ("cut-reply", True)]
)
def test_a_connection_ends_before_the_work_or_after_it(serve, deed, worked):
    _, api, client = serve(Fault(at="say", do=deed))
    with pytest.raises(http.client.HTTPException):
        client("POST", "/say/it", b"hello")
    assert bool(api.done) == worked
    client.connection.close()
    assert client("POST", "/say/it", b"hello")[:2] == (200, b"hello")


def test_fewer_bytes_than_promised_end_the_connection(serve):
    _, _, client = serve()
    with pytest.raises(http.client.IncompleteRead) as broken:
        client("GET", "/look")
    assert broken.value.partial == b"abcd"


@pytest.mark.parametrize(
    ("deed", "status"), [("html-502", 502), ("html-200", 200), ("forbid", 403)]
)
def test_a_reply_instead_of_the_work_leaves_the_connection_usable(serve, deed, status):
    _, api, client = serve(Fault(at="say", do=deed, value="because"))
    # More than one read of the frame: it has to take it all before it answers.
    got, _, headers = client("POST", "/say/it", b"x" * 1_000_000)
    assert (got, headers["x-why"]) == (status, "because" if deed == "forbid" else None)
    assert api.done == []
    assert client("POST", "/say/it", b"more")[:2] == (200, b"more")


def test_ending_the_server_does_not_wait_for_a_slow_reply(serve):
    server, api, client = serve(Fault(at="say", do="slow-reply", seconds=3600))

    def ask():
        with pytest.raises((OSError, http.client.HTTPException)):
            client("POST", "/say/it", b"")

    asking = threading.Thread(target=ask)
    asking.start()
    assert api.worked.wait(10)
    server.pause()
    asking.join(10)
    assert not asking.is_alive()
    server.resume()
    client.connection.close()
    server.plan.clear()
    assert client("POST", "/say/it", b"again")[1] == b"again"


def test_a_fault_can_be_planned_for_the_next_call_of_a_route(serve):
    server, _, client = serve()
    client("POST", "/say/it", b"")
    server.plan.next_call(at="say", do="forbid")
    assert [client("POST", "/say/it", b"")[0] for _ in range(2)] == [403, 200]


@pytest.mark.parametrize("text", ["- {at: say, do: forbid, value: 503}", "[]", ""])
def test_numbers_count_as_words_in_a_plan(tmp_path, text):
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    assert [fault.value for fault in load_faults(path, Fault)] in (["503"], [])
