"""Settings of a Qdrant server."""

import pytest
from pydantic import ValidationError

from embedmill.qdrant_settings import QdrantServerSettings, index_field
from embedmill.vector_stores.qdrant_limits import qdrant_limits


def settings(**more):
    return QdrantServerSettings.model_validate({"kind": "qdrant", **more})


def test_without_anything_said_a_server_of_this_machine_is_meant():
    given = settings()
    assert given.url == "http://localhost:6333"
    assert qdrant_limits(given).records == 256
    assert qdrant_limits(given).writers == 8


@pytest.mark.parametrize(
    "url",
    ["localhost:6333", "ftp://host", "http://", "http://user:word@host", "http://h?api_key=x", ""],
)
def test_what_is_no_plain_address_is_refused(url):
    with pytest.raises(ValidationError):
        settings(url=url)


@pytest.mark.parametrize("key", ["abc", "$KEY", "${KEY} "])
def test_a_key_itself_is_refused(key):
    with pytest.raises(ValidationError):
        settings(api_key=key)


@pytest.mark.parametrize(
    ("url", "fine"),
    [
        ("https://xyz.cloud.qdrant.io", True),
        ("http://localhost:6333", True),
        ("http://127.0.0.1:6333/prefix", True),
        ("http://[::1]:6333", True),
        ("http://qdrant.internal:6333", False),
        ("http://10.0.0.3:6333", False),
        ("http://localhost.example.org:6333", False),
    ],
)
def test_a_key_leaves_this_machine_under_tls_only_unless_told_otherwise(url, fine):
    assert settings(url=url, api_key="${KEY}", allow_http=True).url == url
    assert settings(url=url).url == url
    if fine:
        assert settings(url=url, api_key="${KEY}").url == url
    else:
        with pytest.raises(ValidationError, match="in the clear"):
            settings(url=url, api_key="${KEY}")


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("lang", ("lang", "keyword")),
        ("year:integer", ("year", "integer")),
        ("seen:datetime", ("seen", "datetime")),
        ("a:b", ("a:b", "keyword")),
        (":integer", (":integer", "keyword")),
        ("integer", ("integer", "keyword")),
    ],
)
def test_an_index_has_a_key_and_may_have_a_type(entry, field):
    assert index_field(entry) == field


def test_a_request_stays_below_what_a_server_takes():
    with pytest.raises(ValidationError):
        settings(request_bytes=32 * 2**20)
