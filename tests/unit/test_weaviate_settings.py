"""Settings of Weaviate: addresses, keys in the clear, names of properties."""

import pytest
from pydantic import ValidationError

from embedmill.weaviate_settings import (
    WeaviateSettings,
    addresses,
    property_field,
    property_name,
)


def settings(**more):
    return WeaviateSettings.model_validate({"kind": "weaviate", **more})


@pytest.mark.parametrize(
    ("given", "http", "grpc"),
    [
        ({}, ("localhost", 8080, False), ("localhost", 50051, False)),
        ({"url": "https://w.example"}, ("w.example", 443, True), ("w.example", 50051, True)),
        (
            {"url": "http://w:81", "grpc_url": "https://g.example"},
            ("w", 81, False),
            ("g.example", 443, True),
        ),
        (
            {"url": "https://x.c0.europe.gcp.weaviate.cloud"},
            ("x.c0.europe.gcp.weaviate.cloud", 443, True),
            ("grpc-x.c0.europe.gcp.weaviate.cloud", 443, True),
        ),
        (
            {"url": "https://x.weaviate.network"},
            ("x.weaviate.network", 443, True),
            ("x.grpc.weaviate.network", 443, True),
        ),
    ],
)
def test_both_addresses_follow_from_one_where_it_is_known_how(given, http, grpc):
    assert addresses(settings(**given)) == (http, grpc)


@pytest.mark.parametrize("key", ["url", "grpc_url"])
def test_a_key_does_not_travel_in_the_clear(key):
    with pytest.raises(ValidationError, match="in the clear"):
        settings(**{"url": "https://w", key: "http://w"}, api_key="${K}")
    settings(**{key: "http://127.0.0.1:1"}, api_key="${K}")
    settings(**{key: "http://w"}, api_key="${K}", allow_http=True)


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("lang", "metadata_lang"),
        ("name of file", "metadata_name_of_file"),
        ("$link", "metadata__link"),
        ("1st", "metadata_1st"),
        ("näme", "metadata_n_me"),
        ("id", "metadata_id"),
        ("x_searchable", "metadata_x_searchable_"),
        ("l_nullState", "metadata_l_nullState_"),
    ],
)
def test_keys_become_names_that_the_server_takes(key, name):
    assert property_name(key) == name


@pytest.mark.parametrize("clash", [("a-b", "a_b"), ("a", "A:int"), ("x", "x:int")])
def test_two_keys_of_one_name_are_refused(clash):
    with pytest.raises(ValidationError, match="would both be the property"):
        settings(properties=clash)


def test_a_key_may_have_colons_and_a_type():
    assert property_field("year:int") == ("year", "int")
    assert property_field("dc:title") == ("dc:title", "keyword")
    assert property_field("dc:title:text") == ("dc:title", "text")
