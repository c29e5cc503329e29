"""A bucket server that speaks the protocol of S3, for tests of what is kept in object stores."""

import contextlib
import logging
import threading
import urllib.request
from dataclasses import dataclass, field
from functools import cached_property

import pytest
from moto.backends import list_of_moto_modules
from moto.moto_server.werkzeug_app import DomainDispatcherApplication
from moto.s3.responses import S3Response
from moto.server import ThreadedMotoServer

# The environment variable that settings name for both keys.
SECRET = "TEST_S3"


@dataclass
class S3Server:
    """A server that runs.

    Attributes:
        url: of it.
        requests: that it was sent: method and path, with the query where there is one.
    """

    url: str
    requests: list = field(default_factory=list, repr=False)

    @property
    def access(self):
        """How its buckets are reached, as settings have it."""
        secret = f"${{{SECRET}}}"
        return {
            "endpoint": self.url,
            "region": "us-east-1",
            "access_key": secret,
            "secret_key": secret,
            "allow_http": True,
        }

    @cached_property
    def client(self):
        """Somebody else who uses the buckets."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def put(self, bucket, objects):
        """Put objects: contents by key."""
        for key, content in objects.items():
            self.client.put_object(Bucket=bucket, Key=key, Body=content)

    @contextlib.contextmanager
    def bucket(self, name):
        """A bucket that is there meanwhile; all others go with it."""
        self.client.create_bucket(Bucket=name)
        try:
            yield
        finally:
            reset = urllib.request.Request(f"{self.url}/moto-api/reset", method="POST")
            urllib.request.urlopen(reset, timeout=10).close()


@contextlib.contextmanager
def s3_server():
    """Serve S3 from threads of this process, on a free port of loopback; yields the server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    one_at_a_time = threading.Lock()
    put_object, dispatch = S3Response.put_object, DomainDispatcherApplication.__call__
    requests = []

    def put_at_once(response):
        # S3 compares and puts in one step; there, between the two, another request could put.
        with one_at_a_time:
            return put_object(response)

    def noted(app, environ, start_response):
        query = environ.get("QUERY_STRING")
        path = environ["PATH_INFO"] + (f"?{query}" if query else "")
        requests.append(f"{environ['REQUEST_METHOD']} {path}")
        return dispatch(app, environ, start_response)

    with pytest.MonkeyPatch.context() as patch:
        # A line for every request, which is put together whether it is shown or not.
        patch.setattr(logging.getLogger("werkzeug"), "level", logging.ERROR)
        # It looks through the folders of all its services at every request.
        services = list(list_of_moto_modules())
        patch.setattr("moto.backends.list_of_moto_modules", lambda: services)
        patch.setattr(S3Response, "put_object", put_at_once)
        patch.setattr(DomainDispatcherApplication, "__call__", noted)
        patch.setenv(SECRET, "testing")
        server.start()
        host, port = server.get_host_and_port()
        running = S3Server(f"http://{host}:{port}", requests)
        try:
            yield running
        finally:
            if "client" in vars(running):
                running.client.close()
            server.stop()
