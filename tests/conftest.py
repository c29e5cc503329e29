from pathlib import Path

import certifi
import pytest


@pytest.fixture(scope="session", autouse=True)
def cache_of_the_tests(tmp_path_factory):
    """What is made once for a machine is made once for a session of tests; nobody's home is used.

    Inherited by processes that tests start.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EMBEDMILL_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_certificate(tmp_path_factory):
    """Every client of HTTP reads all that it might trust, 30 ms of processor time a client.

    Nothing here speaks TLS: one certificate is enough.
    """
    bundle = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----\n"
    file = tmp_path_factory.mktemp("tls") / "one.pem"
    file.write_text(bundle[bundle.index("-----BEGIN") : bundle.index(end) + len(end)])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(file))
        yield
