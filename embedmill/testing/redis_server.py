"""A real Redis server on loopback, for as long as a test needs it."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from embedmill.testing.kept_port import kept_port, port_of

_STARTS_WITHIN_S = 10.0


def redis_binary() -> str | None:
    """Where the server is; None: it is not installed."""
    return shutil.which("redis-server")


@contextmanager
def redis_server(folder: Path) -> Iterator[int]:
    """Run a server without a disk; its port.

    Args:
        folder: that it works in.

    Raises:
        FileNotFoundError: it is not installed.
    """
    binary = redis_binary()
    if binary is None:
        raise FileNotFoundError("redis-server")
    with kept_port() as kept:
        port = port_of(kept)
        command = [binary, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
        process = subprocess.Popen(  # noqa: S603 - the program is the system's own
            [*command, "--save", "", "--appendonly", "no"], stdout=subprocess.DEVNULL
        )
        try:
            _await(process, port)
            yield port
        finally:
            process.terminate()
            process.wait(_STARTS_WITHIN_S)


def _await(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + _STARTS_WITHIN_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise OSError(f"redis-server does not answer on port {port}")
