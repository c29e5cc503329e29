"""A bucket server that speaks the protocol of S3, for tests of what is kept in object stores."""

import contextlib
import threading

import pytest
from moto.backends import list_of_moto_modules
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer


@contextlib.contextmanager
def s3_server():
    """Serve S3 from threads of this process, on a free port of loopback; yields its URL."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one_at_a_time = threading.Lock()
    put_object = S3Response.put_object

    def put_at_once(response):
        # S3 compares and puts in one step; there, between the two, another request could put.
        with one_at_a_time:
            return put_object(response)

    with pytest.MonkeyPatch.context() as patch:
        # It looks through the folders of all its services at every request.
        services = list(list_of_moto_modules())
        patch.setattr("moto.backends.list_of_moto_modules", lambda: services)
        patch.setattr(S3Response, "put_object", put_at_once)
        server.start()
        host, port = server.get_host_and_port()
        try:
            yield f"http://{host}:{port}"
        finally:
            server.stop()
