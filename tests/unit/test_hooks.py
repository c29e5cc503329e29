"""Telling others: webhooks and commands, signed, tried again, and never in the way."""

import hmac
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from pydantic import ValidationError

from embedmill.announcing import SIGNATURE, kept_event, signature
from embedmill.version_settings import CommandHookSettings, WebhookSettings
from pipelines.watch import WatchPlan, watch_and_tell

TEXTS = {"a": "one two three", "b": "red green blue"}
SECRET = "a-shared-word"


class Listener:
    """A web server that answers with planned statuses, then with 200."""

    def __init__(self, *statuses):
        self.heard = []
        planned = list(statuses)
        heard = self.heard

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                heard.append((self.path, dict(self.headers), body))
                status = planned.pop(0) if planned else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._thread.join(10)
        self._server.server_close()

    @property
    def events(self):
        return [json.loads(body) for _, _, body in self.heard]


@pytest.fixture
def index(small_index, monkeypatch):
    """Version 1 is published, version 2 is ready; the settings ask for version 2."""
    monkeypatch.setenv("HOOK_SECRET", SECRET)
    made = small_index()
    made.ingest(TEXTS)
    made.swap(embedder={"kind": "hashing", "dimension": 12})
    made.reembed()
    return made


def webhook(listener, **more):
    return {"kind": "webhook", "url": listener.url, **more}


def test_a_webhook_hears_what_was_published_and_what_was_before(index):
    with Listener() as listener:
        index.swap(hooks=[webhook(listener)])
        done = index.publish()
        [event] = listener.events
    assert (event["event"], event["index"], event["alias"]) == ("published", "small", "small")
    assert (event["version"]["number"], event["version"]["dimension"]) == (2, 12)
    assert event["version"]["collection"] == "small--v2"
    assert event["before"]["collection"] == "small--v1"
    assert event["id"] == f"small/{done.run}/published/v2"
    assert [delivery.delivered for delivery in done.told] == [True]
    assert kept_event(index.workspace, "small", done.run) == event


def test_a_rollback_is_told_too_unless_the_hook_does_not_want_it(index):
    with Listener() as all_of_it, Listener() as some:
        index.swap(hooks=[webhook(all_of_it), webhook(some, events=["restored"])])
        index.publish()
        index.rollback()
        assert [event["event"] for event in all_of_it.events] == ["published", "restored"]
        [event] = some.events
    assert event["version"]["number"] == 1
    assert event["before"]["number"] == 2


def test_the_body_is_signed_with_the_time_so_that_others_can_check(index):
    with Listener() as listener:
        index.swap(hooks=[webhook(listener, secret="${HOOK_SECRET}")])
        index.publish()
        _, headers, body = listener.heard[0]
    time, digest = (part.split("=", 1)[1] for part in headers[SIGNATURE].split(","))
    expected = hmac.new(SECRET.encode(), f"{time}.".encode() + body, "sha256").hexdigest()
    assert digest == expected
    assert signature(SECRET, time, body) == headers[SIGNATURE]
    assert SECRET not in str(listener.heard)


def test_a_listener_that_fails_at_first_is_told_again_after_growing_pauses(index):
    with Listener(500, 503, 429) as listener:
        index.swap(hooks=[webhook(listener)])
        before = index.clock.now
        done = index.publish()
    assert len(listener.heard) == 4
    assert len({body for _, _, body in listener.heard}) == 1
    assert index.clock.now - before >= 1 + 4 + 15
    assert (done.told[0].delivered, done.told[0].tries) == (True, 4)


def test_who_does_not_listen_undoes_nothing_and_is_told_by_the_next_command(index):
    with Listener(500, 500, 302) as listener:
        index.swap(hooks=[webhook(listener, tries=3)])
        done = index.publish()
        assert done.switch.changed
        assert index.manifest.published.number == 2
        [delivery] = done.told
        assert (delivery.delivered, delivery.tries, delivery.error) == (False, 3, "status 302")
        # Redirects are not followed.
        assert {path for path, _, _ in listener.heard} == {"/hook"}
        assert index.publish().told[0].delivered
        assert list(index.publish().told) == []
        assert len({event["id"] for event in listener.events}) == 1


def test_nobody_there_is_reported_and_a_sync_tells_later(index):
    with Listener() as listener:
        pass
    index.swap(hooks=[webhook(listener, tries=1)])
    [delivery] = index.publish().told
    assert not delivery.delivered
    assert "refused" in delivery.error
    with Listener() as other:
        index.swap(hooks=[webhook(other)])
        index.ingest()
        assert [event["event"] for event in other.events] == ["published"]


def test_the_first_publication_is_told_by_its_ingest(small_index):
    with Listener() as listener:
        index = small_index(hooks=[webhook(listener)])
        index.ingest(TEXTS)
        index.ingest(TEXTS)
        [event] = listener.events
    assert (event["version"]["number"], event["before"]) == (1, None)


def test_a_missing_secret_is_an_error_of_that_hook_alone(index, monkeypatch):
    with Listener() as listener:
        signed = webhook(listener, secret="${HOOK_SECRET}", tries=1)
        index.swap(hooks=[signed, {"kind": "command", "command": [sys.executable, "-c", ""]}])
        monkeypatch.delenv("HOOK_SECRET")
        first, second = index.publish().told
    assert listener.heard == []
    assert "HOOK_SECRET is not set" in first.error
    assert second.delivered


def test_a_command_gets_the_event_on_its_standard_input(index, tmp_path):
    target = tmp_path / "event.json"
    code = f"import sys, pathlib; pathlib.Path({str(target)!r}).write_text(sys.stdin.read())"
    index.swap(hooks=[{"kind": "command", "command": [sys.executable, "-c", code]}])
    index.publish()
    assert json.loads(target.read_text())["version"]["number"] == 2


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ([sys.executable, "-c", "import sys; sys.exit('no cache to flush')"], "no cache to flush"),
        (["/no/such/program"], "FileNotFoundError"),
    ],
)
def test_a_command_that_fails_is_reported_with_what_it_said(index, command, said):
    index.swap(hooks=[{"kind": "command", "command": command}])
    [delivery] = index.publish().told
    assert not delivery.delivered
    assert said in delivery.error
    assert index.manifest.published.number == 2


def test_a_command_that_hangs_is_ended(index):
    code = "import time; time.sleep(60)"
    hook = {"kind": "command", "command": [sys.executable, "-c", code], "timeout_s": 0.2}
    index.swap(hooks=[hook])
    [delivery] = index.publish().told
    assert delivery.error == "no answer within 0.2 s"


def test_an_address_that_is_not_http_is_refused():
    with pytest.raises(ValidationError, match="must begin with http"):
        WebhookSettings.model_validate_json('{"kind": "webhook", "url": "file:///etc/passwd"}')
    with pytest.raises(ValidationError):
        CommandHookSettings.model_validate_json('{"kind": "command", "command": []}')


def test_a_publication_is_watched_while_a_hook_does_not_answer(index):
    between_tries, checks = threading.Event(), []

    def check(*_):
        assert between_tries.wait(20)
        checks.append(index.manifest.published.number)
        return "down"

    def sleep(seconds):
        # Nothing but the telling pauses; its pause lasts until readers are taken back.
        between_tries.set()
        for _ in range(2000 if seconds else 0):
            if index.manifest.published.number == 1:
                return
            threading.Event().wait(0.01)

    with Listener(500) as listener:
        index.swap(hooks=[webhook(listener)])
        done = index.publish(tells=False)
        assert listener.heard == []
        plan = WatchPlan("check", for_s=60, every_s=0, failures=3)
        with index.seams():
            done, watched = watch_and_tell(index.settings, done, plan, sleep=sleep, check=check)

    assert (checks, watched.ended) == ([2, 2, 2], "rolled-back")
    # The first try was refused; before the second one readers were elsewhere, and that was told.
    assert [event["event"] for event in listener.events] == ["published", "restored"]
    assert list(done.told) == []
    assert [delivery.delivered for delivery in watched.back.told] == [True]
