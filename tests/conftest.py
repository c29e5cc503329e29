import gc
import os
from functools import lru_cache
from pathlib import Path

import certifi
import pytest

from embedmill.parquet_files import from_parquet, schema_of

# How wide and how colourful the output is to be, and what else somebody has set for the commands of
# an index: tests read what is printed where nobody has. Some of it is read when rich and typer are
# imported, so this comes first.
for name in (
    "CLICOLOR_FORCE",
    "COLUMNS",
    "EMBEDMILL_CONFIG",
    "FORCE_COLOR",
    "GITHUB_ACTIONS",
    "LINES",
    "NO_COLOR",
    "PY_COLORS",
    "RAY_ADDRESS",
    "TERM",
    "TERMINAL_WIDTH",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
):
    os.environ.pop(name, None)

# Threads of torch sleep while they wait for each other: beside other processes they would wait in a
# loop, for a fifth of the processor time of all tests of local models.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Bytes. Larger files are what a test is about, and are read as often as it says.
SMALL_FILE = 32 * 2**10


def pytest_collection_finish() -> None:
    """What is imported by now stays, and is no garbage to be looked through again and again.

    That was 4 % of all processor time.
    """
    gc.collect()
    gc.freeze()


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


def once(read):
    """A reader of Parquet bytes that reads equal small files once; what it raises, it raises again.

    Tables and schemas cannot be changed: who asks for one gets the one that others have.
    """
    read_once = lru_cache(maxsize=2_000)(read)

    def of(data, path, columns=None):
        if len(data) > SMALL_FILE:
            return read(data, path) if columns is None else read(data, path, columns)
        return read_once(data, path) if columns is None else read_once(data, path, tuple(columns))

    return of


@pytest.fixture(scope="session", autouse=True)
def small_files_are_read_once():
    """Histories of an index read the same few files many thousand times.

    That was two fifths of all processor time of the tests of crash points.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("embedmill.segment.from_parquet", once(from_parquet))
        patch.setattr("embedmill.vector_layer.from_parquet", once(from_parquet))
        patch.setattr("embedmill.segment.schema_of", once(schema_of))
        patch.setattr("embedmill.job_records.from_parquet", once(from_parquet))
        yield
