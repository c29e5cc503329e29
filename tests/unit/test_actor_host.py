"""What runs in an actor's process: calls of a worker, and what was logged meanwhile."""

import gc
import logging

import pytest

from actors.host import Host
from embedmill.executor import WorkerSpec


class Worker:
    def work(self):
        return 7


@pytest.fixture
def host():
    root = logging.getLogger()
    before = list(root.handlers)
    yield Host(WorkerSpec(Worker, ()), logging.WARNING)
    root.handlers[:] = before
    for package in ("actors", "embedmill"):
        logging.getLogger(package).setLevel(logging.NOTSET)
    gc.unfreeze()


@pytest.mark.parametrize(
    ("text", "arguments"), [("%d rows", ("many",)), ("%s", ()), ("%(rows)d rows", ({"row": 1},))]
)
def test_a_message_whose_arguments_do_not_fit_ends_no_call(host, text, arguments):
    [handler] = [handler for handler in logging.getLogger().handlers if handler.formatter is None]
    handler.handle(logging.LogRecord("lib", logging.WARNING, "", 0, text, arguments, None))
    handler.handle(logging.LogRecord("lib", logging.WARNING, "", 0, "%d rows", (3,), None))
    value, notes = host.run("work", 0)
    assert value == 7
    assert notes == [(logging.WARNING, "lib", text), (logging.WARNING, "lib", "3 rows")]
    assert host.run("work", 0)[1] == []
