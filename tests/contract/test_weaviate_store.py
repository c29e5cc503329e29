"""What the store makes of Weaviate: definitions, payloads, tenants, aliases, limits."""

import threading

import numpy as np
import pytest

pytest.importorskip("weaviate")

from weaviate_rig import Rig, as_text, quick_clients, record_ids, records

from embedmill.errors import RefusedError, StopRunError, TransientError
from embedmill.testing.counting_store_contract import UNIT, a_batch, unit_vectors
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.weaviate_names import class_name


@pytest.fixture
def make_rig(monkeypatch):
    quick_clients(monkeypatch)
    made = []

    def make(**options):
        made.append(Rig(**options))
        made[-1].server.__enter__()
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig):
    return make_rig()


def property_of(rig, name):
    return rig.state.classes[class_name("notes")].property(name)


def test_a_collection_is_declared_in_full_and_says_what_it_was_made_for(rig):
    rig.filled(3, properties=("lang", "year:int"))
    definition = rig.definition()
    assert definition["class"] == "Embedmill_notes"
    assert '"dimension":16' in definition["description"]
    vectors = definition["vectorConfig"]["default"]
    assert (vectors["vectorizer"], vectors["vectorIndexType"]) == ({"none": {}}, "hnsw")
    assert vectors["vectorIndexConfig"]["distance"] == "cosine"
    assert vectors["vectorIndexConfig"]["skipDefaultQuantization"]
    assert {
        one["name"]: (one["dataType"][0], one.get("tokenization"), one["indexFilterable"])
        for one in definition["properties"]
    } == {
        "doc_id": ("text", "field", True),
        "chunk_index": ("int", None, True),
        "text": ("text", "word", False),
        "embedmill_rest": ("text", "field", False),
        "embedmill_find": ("text[]", "field", True),
        "metadata_lang": ("text", "field", True),
        "metadata_year": ("int", None, True),
    }


def test_nothing_is_left_to_the_auto_schema(make_rig):
    rig = make_rig(auto_schema=False)
    store = rig.filled(0)
    payloads = [
        {"$link": 1, "a-b": [1], "id": "x", "vector": [1], "1st": None, "näme": "ü", "": {}},
        {"id": 3, "vector": "text now", "_id": True, "x_searchable": 1.5, "_additional": "y"},
    ]
    assert list(store.upsert("notes", a_batch(2, payloads=payloads))) == []
    assert list(store.fetch("notes", record_ids(2)).payloads) == payloads
    query = unit_vectors(1)[0]
    assert [hit.id for hit in store.search("notes", query, 5, {"id": "x"})] == record_ids(1)
    assert [hit.id for hit in store.search("notes", query, 5, {"_id": True})] == record_ids(2)[1:]


def test_metadata_keys_are_filtered_on_by_their_names(rig):
    store = rig.filled(20)
    query = unit_vectors(1)[0]
    hits = store.search("notes", query, 50, {"metadata.lang": "de", "metadata.year": [2001, 2003]})
    assert {hit.payload["doc_id"] for hit in hits} == {"doc-1", "doc-3", "doc-11", "doc-13"}
    assert list(store.search("notes", query, 50, {"metadata.lang": "DE"})) == []
    assert list(store.search("notes", query, 50, {"lang": "de"})) == []


@pytest.mark.parametrize("value", ["the", "The Cat", "cat the", "cat", " cat", "", "a" * 500])
def test_a_filter_is_equality_whatever_the_server_makes_of_words(rig, value):
    values = ["the", "The Cat", "cat the", "cat", " cat", "", "cat ", "a" * 500, "a" * 501]
    store = rig.filled(0)
    store.upsert("notes", a_batch(9, payloads=[{"metadata": {"tag": one}} for one in values]))
    hits = store.search("notes", unit_vectors(1)[0], 20, {"metadata.tag": value})
    assert [hit.payload["metadata"]["tag"] for hit in hits] == [value]


def test_what_other_programs_see_are_typed_properties(rig):
    keys = ("lang", "name of file", "year:int", "score:number", "done:bool", "at:date")
    store = rig.filled(0, properties=(*keys, "tags:keyword[]", "title:text", "x_searchable"))
    metadata = {
        "lang": "de",
        "name of file": "a.md",
        "year": 2001,
        "score": 0.5,
        "done": True,
        "at": "2026-11-29T12:00:00Z",
        "tags": ["a", "b"],
        "title": "A title",
        "x_searchable": "y",
    }
    odd = {
        "lang": 3,
        "year": 2**60,
        "score": "high",
        "done": 1,
        "at": "2026-11-29",
        "tags": ["a", 1],
        "title": None,
    }
    batch = a_batch(2, payloads=[{"metadata": metadata}, {"metadata": odd}])
    assert list(store.upsert("notes", batch)) == []
    good, bad = (rig.objects()[str(record)].properties for record in record_ids(2))
    assert {name: value for name, value in good.items() if name.startswith("metadata_")} == {
        "metadata_lang": "de",
        "metadata_name_of_file": "a.md",
        "metadata_year": 2001,
        "metadata_score": 0.5,
        "metadata_done": True,
        "metadata_at": "2026-11-29T12:00:00Z",
        "metadata_tags": ["a", "b"],
        "metadata_title": "A title",
        "metadata_x_searchable_": "y",
    }
    assert not [name for name in bad if name.startswith("metadata_")]
    # Nothing is lost of what does not fit.
    assert list(store.fetch("notes", record_ids(2)).payloads) == list(batch.payloads)
    assert '"name of file"' in property_of(rig, "metadata_name_of_file")["description"]


def test_properties_that_the_settings_have_got_since_are_added(rig):
    rig.filled(3)
    store = rig.store(properties=("lang", "year:int"))
    store.create_collection("notes", UNIT)
    store.upsert("notes", records(2))
    store.create_collection("notes", UNIT)
    assert rig.objects()[str(record_ids(1)[0])].properties["metadata_year"] == 2000
    with pytest.raises(RefusedError, match="metadata_year"):
        rig.store(properties=("year",)).create_collection("notes", UNIT)


def test_the_settings_decide_how_a_collection_is_made(rig):
    store = rig.store(
        compression="rq",
        graph_max_connections=48,
        graph_ef_construction=200,
        search_ef=64,
        shards=3,
        replication_factor=3,
        searchable_text=False,
    )
    store.create_collection("notes", CollectionSpec(8, "euclid", normalised=False))
    definition = rig.definition()
    config = definition["vectorConfig"]["default"]["vectorIndexConfig"]
    wanted = {"distance": "l2-squared", "maxConnections": 48, "efConstruction": 200, "ef": 64}
    assert config | wanted | {"rq": {"enabled": True}} == config
    assert "skipDefaultQuantization" not in config
    assert definition["shardingConfig"]["desiredCount"] == 3
    assert definition["replicationConfig"]["deletionStrategy"] == "TimeBasedResolution"
    assert not property_of(rig, "text")["indexSearchable"]
    for index_type in ("flat", "dynamic"):
        rig.store(index_type=index_type).create_collection(f"as-{index_type}", UNIT)
        config = rig.definition(f"as-{index_type}")["vectorConfig"]["default"]
        assert config["vectorIndexType"] == index_type


def test_a_setting_that_the_server_refuses_is_refused_with_its_words(rig):
    with pytest.raises(RefusedError, match="quantization"):
        rig.store(index_type="flat", compression="sq").create_collection("notes", UNIT)


def test_names_that_differ_in_case_alone_are_two_collections(rig):
    store = rig.filled(2)
    store.create_collection("Notes", UNIT)
    store.create_collection("no-t_es.z", UNIT)
    store.create_collection("A" * 150, UNIT)
    assert list(store.collections()) == sorted(["A" * 150, "Notes", "no-t_es.z", "notes"])
    assert (store.count("Notes"), store.count("notes")) == (0, 2)
    store.set_alias("Live", "A" * 150)
    assert store.alias_target("Live") == "A" * 150


def test_a_collection_of_somebody_else_is_left_alone(rig):
    store = rig.filled(2)
    client = store._connection._open()
    client.collections.create_from_dict({"class": "Embedmill_theirs", "properties": []})
    client.collections.create_from_dict({"class": "Articles", "properties": []})
    assert list(store.collections()) == ["notes"]
    for call in (
        lambda: store.create_collection("theirs", UNIT),
        lambda: store.upsert("theirs", records(1)),
        lambda: store.drop_collection("theirs"),
        lambda: store.count("theirs"),
    ):
        with pytest.raises(RefusedError, match="not one of embedmill's"):
            call()
    assert "Embedmill_theirs" in rig.state.classes


def test_more_ids_than_a_server_deletes_at_once_are_deleted_in_rounds(make_rig):
    for tells_all in (False, True):
        rig = make_rig(max_results=40, tells_all_matches=tells_all)
        store = rig.filled(100)
        store.delete("notes", record_ids(95))
        assert rig.ids() == as_text(record_ids(5, start=95))
        assert rig.calls("objects.delete") == 3
        store.delete("notes", [*record_ids(3), *record_ids(2, start=95)])
        assert rig.calls("objects.delete") == 5
        assert len(rig.ids()) == 3


def test_requests_are_packed_by_bytes_and_by_what_the_server_takes(make_rig):
    rig = make_rig(max_message=2**16)
    store = rig.store(records_per_request=1000)
    store.create_collection("notes", CollectionSpec(1536, "cosine", normalised=True))
    vectors = unit_vectors(60, dimension=1536)
    batch = VectorBatch(record_ids(60), vectors, records(60).payloads)
    rig.server.plan.calls.clear()
    assert list(store.upsert("notes", batch)) == []
    # 6 KB of vector and 300 bytes of the rest; the server takes 64 KB less some room.
    assert rig.calls("objects.batch") == 7
    assert np.array_equal(store.fetch("notes", record_ids(5)).vectors, vectors[:5])


def test_a_record_that_is_larger_than_a_message_is_rejected_and_its_neighbours_are_stored(make_rig):
    rig = make_rig(max_message=2**16)
    store = rig.filled(0)
    batch = records(3)
    batch.payloads[1]["text"] = "x" * 2**16
    assert [(one.row, one.code) for one in store.upsert("notes", batch)] == [
        (1, "refused-by-store")
    ]
    assert len(rig.ids()) == 2


def test_a_store_that_takes_nothing_stops_the_run_soon(rig):
    store = rig.filled(0, records_per_request=8)
    rig.plan("objects.batch", "refuse-all", times=0)
    with pytest.raises(StopRunError, match="something that nobody knows"):
        store.upsert("notes", records(500))
    assert rig.calls("objects.batch") == 2


def test_vectors_of_another_length_stop_the_run(rig):
    store = rig.filled(3)
    rig.state.classes[class_name("notes")].dimensions["default"] = 8
    with pytest.raises(StopRunError) as stop:
        store.upsert("notes", records(3))
    assert stop.value.code == "collection"


def test_a_server_that_indexes_in_its_own_time_is_waited_for_before_readers_come(make_rig):
    rig = make_rig(queued_looks=3)
    slept = []
    store = rig.filled(5, sleep=slept.append)
    assert store.count("notes") == 5
    assert list(store.search("notes", records(1).vectors[0], 3)) == []
    store.finish("notes")
    assert len(slept) == 3
    assert len(store.search("notes", records(1).vectors[0], 3)) == 3


def test_an_index_that_is_never_ready_is_not_waited_for_for_ever(make_rig):
    rig = make_rig(queued_looks=10_000)
    now = [0.0]
    store = rig.filled(
        5,
        sleep=lambda seconds: now.__setitem__(0, now[0] + seconds),
        clock=lambda: now[0],
        index_timeout_s=30.0,
    )
    with pytest.raises(TransientError, match=r"not indexed: 997,000 vectors .* after 30 seconds"):
        store.finish("notes")
    rig.state.classes[class_name("notes")].read_only = True
    with pytest.raises(StopRunError) as stop:
        store.finish("notes")
    assert stop.value.code == "read-only"


@pytest.mark.parametrize("version", ["1.34.0", "1.31.4"])
def test_readers_see_the_old_collection_or_the_new_while_an_alias_moves(make_rig, version):
    rig = make_rig(version=version)
    store = rig.filled(0)
    store.create_collection("newer", UNIT)
    for name, seed in (("notes", 0), ("newer", 1)):
        store.upsert(name, records(30, seed=seed, version=name))
    store.set_alias("live", "notes")
    answers, ended, readers = [], threading.Event(), []

    def read():
        own = rig.store()
        while not ended.is_set():
            answers.append([hit.payload["version"] for hit in own.search("live", query, 10)])

    query = unit_vectors(1, seed=3)[0]
    for _ in range(2):
        readers.append(threading.Thread(target=read))
        readers[-1].start()
    for turn in range(10):
        before = len(answers)
        store.set_alias("live", ["newer", "notes"][turn % 2])
        while len(answers) < before + 4:
            ended.wait(0.002)
    ended.set()
    for reader in readers:
        reader.join()
    assert {tuple(set(answer)) for answer in answers} == {("notes",), ("newer",)}
    assert {len(answer) for answer in answers} == {10}


def test_a_server_without_aliases_keeps_them_as_objects(make_rig):
    rig = make_rig(version="1.31.4")
    store = rig.filled(3)
    assert store.alias_target("live") is None
    store.set_alias("live", "notes")
    store.set_alias("other", "notes")
    store.create_collection("newer", UNIT)
    store.set_alias("live", "newer")
    again = rig.store()
    assert (again.alias_target("live"), again.alias_target("other")) == ("newer", "notes")
    assert list(again.collections()) == ["newer", "notes"]
    with pytest.raises(RefusedError, match="'other' points at"):
        again.drop_collection("notes")
    with pytest.raises(RefusedError, match="alias"):
        again.create_collection("live", UNIT)
    assert rig.calls("aliases.list") == 0


def test_a_server_that_is_too_old_is_refused_with_both_versions(make_rig):
    with pytest.raises(StopRunError, match=r"1\.28\.2.*1\.29"):
        make_rig(version="1.28.2").store().collections()


class TestCopies:
    """One copy is behind the others: quorums do not notice, and counts stand still first."""

    @pytest.fixture
    def rig(self, make_rig):
        return make_rig(copy_lag=3)

    @pytest.fixture
    def clock(self, rig):
        now = [0.0]

        def sleep(seconds):
            now[0] += seconds

        return {"clock": lambda: now[0], "sleep": sleep}

    def test_what_was_written_is_found_at_once_and_counted_in_the_end(self, rig, clock):
        store = rig.store(replication_factor=3, **clock)
        store.create_collection("notes", UNIT)
        store.upsert("notes", records(20))
        assert set(store.ids("notes")) == set(record_ids(20))
        assert len(store.fetch("notes", record_ids(20)).ids) == 20
        assert store.count("notes") == 20

    def test_without_copies_nothing_is_waited_for(self, rig, clock):
        store = rig.store(**clock)
        store.create_collection("notes", UNIT)
        store.upsert("notes", records(2))
        store.count("notes")
        assert clock["clock"]() == 0
        assert rig.calls("aggregate") == 1


class TestTenants:
    @pytest.fixture
    def store(self, rig):
        store = rig.store(tenant_key="customer")
        store.create_collection("notes", UNIT)
        return store

    @staticmethod
    def batch(customers):
        payloads = [
            {"doc_id": f"doc-{row}", "metadata": {"customer": customer}}
            for row, customer in enumerate(customers)
        ]
        return a_batch(len(customers), payloads=payloads)

    def test_each_value_is_a_tenant_and_no_tenant_sees_another(self, rig, store):
        customers = ["acme", "zürich ag", "acme", None, 3, ["acme"], "_other"]
        store.upsert("notes", self.batch(customers))
        tenants = rig.state.classes[class_name("notes")].objects
        assert {len(objects) for objects in tenants.values()} == {1, 2, 3}
        assert len(tenants["acme"]) == 2
        assert len(tenants["_other"]) == 3
        assert store.count("notes") == 7
        assert set(store.ids("notes")) == set(record_ids(7))
        query = unit_vectors(1)[0]
        for customer in ("acme", "zürich ag", "_other", "nobody"):
            hits = store.search("notes", query, 10, {"metadata.customer": customer})
            expected = [row for row, one in enumerate(customers) if one in (customer, [customer])]
            assert {hit.id for hit in hits} == {record_ids(7)[row] for row in expected}

    def test_without_a_customer_the_nearest_of_all_are_found(self, store):
        batch = self.batch(["a", "b", "c"] * 20)
        store.upsert("notes", batch)
        query = unit_vectors(1, seed=8)[0]
        right = np.argsort(-(batch.vectors @ query))[:10]
        hits = store.search("notes", query, 10)
        assert [hit.id for hit in hits] == [batch.ids[row] for row in right]
        assert len(store.fetch("notes", batch.ids).ids) == 60

    def test_a_record_that_changes_its_customer_is_in_the_new_tenant_alone(self, rig, store):
        store.upsert("notes", self.batch(["a", "a", "b"]))
        again = rig.store(tenant_key="customer")
        again.upsert("notes", self.batch(["b", "a", "c"]))
        tenants = rig.state.classes[class_name("notes")].objects
        ids = [str(record) for record in record_ids(3)]
        assert {name: set(objects) for name, objects in tenants.items()} == {
            "a": {ids[1]},
            "b": {ids[0]},
            "c": {ids[2]},
        }
        assert again.count("notes") == 3

    def test_ids_are_deleted_whichever_tenant_they_are_in(self, rig, store):
        store.upsert("notes", self.batch(["a", "b", "c", "a"]))
        store.delete("notes", record_ids(3))
        assert rig.ids() == as_text(record_ids(4)[3:])

    def test_an_inactive_tenant_is_asked_like_any_other(self, rig, store):
        store.upsert("notes", self.batch(["acme", "globex"]))
        states = rig.state.classes[class_name("notes")].states
        states["acme"] = "INACTIVE"
        assert store.count("notes") == 2
        assert not states

    @pytest.mark.parametrize(
        ("state", "error", "code"),
        [
            ("OFFLOADED", StopRunError, "tenant-offloaded"),
            ("OFFLOADING", StopRunError, "tenant-offloaded"),
            ("ONLOADING", TransientError, "tenant-loading"),
        ],
    )
    def test_what_is_in_a_tenant_that_is_away_does_not_count_as_missing(
        self, rig, store, state, error, code
    ):
        store.upsert("notes", self.batch(["acme", "globex"]))
        rig.state.classes[class_name("notes")].states["acme"] = state
        query = unit_vectors(1)[0]
        for call in (
            lambda: store.count("notes"),
            lambda: list(store.ids("notes")),
            lambda: store.search("notes", query, 10),
            lambda: store.search("notes", query, 10, {"metadata.customer": "acme"}),
            lambda: store.delete("notes", record_ids(2)),
        ):
            with pytest.raises(error, match="acme") as refused:
                call()
            assert refused.value.code == code
        # Who asks for another customer is not in need of it.
        assert len(store.search("notes", query, 10, {"metadata.customer": "globex"})) == 1

    def test_an_inactive_tenant_that_nobody_may_wake_is_named(self, rig, store):
        store.upsert("notes", self.batch(["acme", "globex"]))
        found = rig.state.classes[class_name("notes")]
        found.definition["multiTenancyConfig"]["autoTenantActivation"] = False
        found.states["acme"] = "INACTIVE"
        with pytest.raises(TransientError, match="acme") as refused:
            store.count("notes")
        assert "autoTenantActivation" in refused.value.hint

    def test_a_collection_with_other_tenants_is_refused(self, rig, store):
        with pytest.raises(RefusedError, match="customer"):
            rig.store().create_collection("notes", UNIT)
        with pytest.raises(RefusedError, match="lang"):
            rig.store(tenant_key="lang").create_collection("notes", UNIT)
