"""A port of loopback that stays ours while nothing listens on it."""

from __future__ import annotations

import socket


def kept_port(port: int = 0) -> socket.socket:
    """A socket that keeps its port from all that ask for any free one, until it is closed.

    Servers that reuse addresses, as servers do, can listen on the port meanwhile, one after the
    other; between them connections are refused.

    Args:
        port: 0: any that is free.

    Raises:
        OSError: somebody listens on the port; says which it is.
    """
    kept = socket.socket()
    try:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
    except OSError as error:
        kept.close()
        raise OSError(error.errno, f"port {port} cannot be served: {error.strerror}") from error
    return kept


def port_of(kept: socket.socket) -> int:
    """The port that it keeps."""
    port: int = kept.getsockname()[1]
    return port
