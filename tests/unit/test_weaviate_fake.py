"""The fake Weaviate is as strict as the real one, seen through the real client."""

import ssl
from types import SimpleNamespace
from uuid import UUID

import pytest

pytest.importorskip("weaviate")

import weaviate
from weaviate.classes.data import DataObject
from weaviate.classes.query import Filter
from weaviate.exceptions import (
    UnexpectedStatusCodeError,
    WeaviateInsertManyAllFailedError,
    WeaviateQueryError,
)

from embedmill.testing.weaviate_server import ServerOptions, WeaviateServer, main


@pytest.fixture
def served(monkeypatch):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    monkeypatch.setattr("httpx._transports.default.create_ssl_context", lambda **_: context)
    monkeypatch.setattr("weaviate.retry.time", SimpleNamespace(sleep=lambda _: None))
    clients = []
    servers = []

    def serve(**options):
        server = WeaviateServer(options=ServerOptions(**options))
        servers.append(server.__enter__())
        rest, grpc = (int(url.rpartition(":")[2]) for url in (server.url, server.grpc_url))
        clients.append(
            weaviate.connect_to_custom(
                "127.0.0.1", rest, False, "127.0.0.1", grpc, False, skip_init_checks=True
            )
        )
        return clients[-1]

    yield serve
    for client, server in zip(clients, servers, strict=True):
        client.close()
        server.__exit__(None, None, None)


def a_class(name="Notes", **more):
    vectors = {"default": {"vectorizer": {"none": {}}, "vectorIndexType": "hnsw"}}
    return {"class": name, "vectorConfig": vectors, **more}


def an_object(number, **properties):
    return DataObject(properties, uuid=UUID(int=number), vector={"default": [1.0, float(number)]})


def notes(client, *objects, **more):
    used = client.collections.create_from_dict(a_class(**more))
    reply = used.data.insert_many(list(objects)) if objects else None
    return used, reply


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        (a_class("no such"), "not a valid class name"),
        (a_class(properties=[{"name": "a-b", "dataType": ["text"]}]), "not a valid property"),
        (a_class(properties=[{"name": "id", "dataType": ["text"]}]), "reserved"),
        (a_class(properties=[{"name": "x_searchable", "dataType": ["text"]}]), "reserved"),
        (a_class(properties=[{"name": "a", "dataType": ["string of mine"]}]), "invalid dataType"),
        (
            a_class(properties=[{"name": "a", "dataType": ["int"], "tokenization": "field"}]),
            "tokenization is not allowed",
        ),
        (
            a_class(properties=[{"name": one, "dataType": ["int"]} for one in ("a", "A")]),
            "conflict for property",
        ),
        ({"class": "Notes", "vectorConfig": {"v": {"vectorizer": {"text2vec": {}}}}}, "no module"),
    ],
)
def test_definitions_are_checked(served, definition, words):
    with pytest.raises(UnexpectedStatusCodeError, match=words):
        served().collections.create_from_dict(definition)


def test_names_that_differ_in_case_alone_are_one(served):
    client = served()
    client.collections.create_from_dict(a_class("MyNotes"))
    with pytest.raises(UnexpectedStatusCodeError, match="found similar class"):
        client.collections.create_from_dict(a_class("Mynotes"))
    with pytest.raises(UnexpectedStatusCodeError, match="already exists"):
        client.collections.create_from_dict(a_class("MyNotes"))


def test_the_auto_schema_takes_types_from_the_first_object(served):
    used, reply = notes(
        served(),
        an_object(1, ref=str(UUID(int=7)), at="2026-11-29T12:00:00Z", count=3),
        an_object(2, ref="not-a-uuid"),
        an_object(3, at="yesterday"),
        an_object(4, count="many"),
        an_object(5, other="fine"),
    )
    assert {at: error.message.split(" on class")[0] for at, error in reply.errors.items()} == {
        1: "invalid uuid property 'ref'",
        2: "invalid date property 'at'",
        3: "invalid number property 'count'",
    }
    assert used.aggregate.over_all(total_count=True).total_count == 2


def test_without_the_auto_schema_what_is_not_declared_is_refused(served):
    with pytest.raises(WeaviateInsertManyAllFailedError, match="no such prop"):
        notes(served(auto_schema=False), an_object(1, surprise="x"))


def test_numbers_travel_as_floats(served):
    properties = [{"name": "n", "dataType": ["int"]}]
    used, _ = notes(served(), an_object(1, n=2**53 + 1), properties=properties)
    assert used.query.fetch_objects().objects[0].properties["n"] == 2**53


@pytest.mark.parametrize(
    ("tokenization", "wanted", "found"),
    [
        ("word", "CAT", {1, 2}),
        ("word", "the cat", {1, 2}),
        ("field", "cat", set()),
        ("field", "The Cat", {1}),
        ("field", " The Cat ", {1}),
    ],
)
def test_equality_is_as_texts_were_cut(served, tokenization, wanted, found):
    known = [{"name": "title", "dataType": ["text"], "tokenization": tokenization}]
    used, _ = notes(
        served(),
        an_object(1, title="The Cat"),
        an_object(2, title="cat of the house"),
        properties=known,
    )
    reply = used.query.fetch_objects(filters=Filter.by_property("title").equal(wanted))
    assert {one.uuid.int for one in reply.objects} == found


def test_a_filter_needs_an_index_a_type_and_more_than_stop_words(served):
    known = [
        {"name": "title", "dataType": ["text"]},
        {"name": "raw", "dataType": ["text"], "indexFilterable": False},
    ]
    used, _ = notes(served(), properties=known)
    title = Filter.by_property("title")
    for where, words in (
        (title.equal(3), "data type filter"),
        (title.equal("the"), "only stopwords"),
        (Filter.by_property("raw").equal("x"), "indexFilterable"),
        (Filter.by_property("absent").equal("x"), "no such prop"),
    ):
        with pytest.raises(WeaviateQueryError, match=words):
            used.query.fetch_objects(filters=where)


def test_the_first_vector_decides_on_the_length_of_all(served):
    used, _ = notes(served(), an_object(1))
    longer = DataObject({}, uuid=UUID(int=2), vector={"default": [1.0, 2.0, 3.0]})
    with pytest.raises(WeaviateInsertManyAllFailedError, match="vector with length 3"):
        used.data.insert_many([longer])
    with pytest.raises(WeaviateQueryError, match="lengths don't match"):
        used.query.near_vector([1.0], target_vector="default")


def test_one_query_and_one_deletion_handle_so_many(served):
    used, _ = notes(served(max_results=5), *(an_object(number) for number in range(1, 9)))
    with pytest.raises(WeaviateQueryError, match="maximum results"):
        used.query.fetch_objects(limit=6)
    everything = Filter.by_id().contains_any([UUID(int=number) for number in range(1, 9)])
    assert [used.data.delete_many(everything).successful for _ in range(3)] == [5, 3, 0]


def test_tenants_are_needed_where_there_are_any_and_nowhere_else(served):
    client = served()
    used, _ = notes(client, multiTenancyConfig={"enabled": True})
    with pytest.raises(WeaviateInsertManyAllFailedError, match="without tenant"):
        used.data.insert_many([an_object(1)])
    with pytest.raises(WeaviateInsertManyAllFailedError, match="tenant not found"):
        used.with_tenant("acme").data.insert_many([an_object(1)])
    plain = client.collections.create_from_dict(a_class("Plain"))
    with pytest.raises(WeaviateInsertManyAllFailedError, match="multi-tenancy disabled"):
        plain.with_tenant("acme").data.insert_many([an_object(1)])


def test_a_dropped_collection_leaves_its_alias_dangling(served):
    client = served()
    notes(client, an_object(1))
    client.alias.create(alias_name="Live", target_collection="Notes")
    with pytest.raises(UnexpectedStatusCodeError, match="already exists"):
        client.alias.create(alias_name="Notes", target_collection="Notes")
    assert client.alias.update(alias_name="Nothing", new_target_collection="Notes") is False
    client.collections.delete("Live")
    assert client.collections.use("Live").aggregate.over_all().total_count == 1
    client.collections.delete("Notes")
    assert client.alias.get(alias_name="Live").collection == "Notes"
    with pytest.raises(WeaviateQueryError, match="could not find class"):
        client.collections.use("Live").query.fetch_objects()


def test_a_fault_that_nobody_knows_is_refused(tmp_path):
    plan = tmp_path / "faults.yaml"
    plan.write_text("- {at: objects.batch, do: explode}")
    with pytest.raises(ValueError, match="explode"):
        main(["--faults", str(plan)])
