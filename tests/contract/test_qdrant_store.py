"""What a store on a Qdrant server does beyond the contract that all stores share."""

import numpy as np
import pytest

pytest.importorskip("qdrant_client")

from qdrant_grpc_front import grpc_front
from qdrant_rig import Rig, as_text, record_ids, records

from embedmill.errors import (
    OutcomeUnknownError,
    RateLimitedError,
    RefusedError,
    StopRunError,
    TransientError,
)
from embedmill.testing.counting_store_contract import DIMENSION, UNIT, unit_vectors
from embedmill.testing.qdrant_fake_faults import Fault
from embedmill.vector_store import CollectionSpec, VectorBatch


@pytest.fixture
def rig(monkeypatch):
    """Makes a rig; its server serves until the end of the test."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("QDRANT_KEY", "zebra-crossing")
    made = []

    def make(*faults, **options):
        made.append(Rig(*faults, **options))
        made[-1].server.__enter__()
        return made[-1]

    yield make
    for one in made:
        one.close()


class TestCollections:
    def test_its_spec_its_indexes_and_its_options_stand_on_the_server(self, rig):
        rig = rig()
        store = rig.store(
            on_disk=True,
            shard_number=2,
            replication_factor=3,
            write_consistency_factor=2,
            quantisation="scalar",
            graph_m=8,
            graph_ef_construct=64,
            payload_indexes=("lang", "year:integer", "a b:c"),
            tenant_key="customer",
            bulk_load="off",
        )
        store.create_collection("notes", CollectionSpec(DIMENSION, "euclid", normalised=False))
        found = rig.server.state.described("notes")
        config = found["config"]
        assert config["metadata"]["embedmill"] == {
            "dimension": DIMENSION,
            "metric": "euclid",
            "normalised": False,
        }
        params = config["params"]
        assert params.pop("vectors") == {"size": DIMENSION, "distance": "Euclid", "on_disk": True}
        assert list(params.values()) == [2, 3, 2]
        assert config["quantization_config"]["scalar"]["type"] == "int8"
        assert (config["hnsw_config"]["m"], config["hnsw_config"]["ef_construct"]) == (8, 64)
        types = {path: entry["data_type"] for path, entry in found["payload_schema"].items()}
        assert types == {
            "doc_id": "keyword",
            "chunk_index": "integer",
            "metadata.lang": "keyword",
            "metadata.year": "integer",
            'metadata."a b:c"': "keyword",
            "metadata.customer": "keyword",
        }
        assert found["payload_schema"]["metadata.customer"]["params"]["is_tenant"] is True

    def test_indexes_are_made_before_any_record(self, rig):
        rig = rig()
        rig.filled(3)
        paths = [
            path.partition("?")[0].removeprefix("/collections") for _, path in rig.server.requests
        ]
        assert paths.index("/notes/points") > max(
            at for at, path in enumerate(paths) if path == "/notes/index"
        )

    def test_creating_again_asks_for_nothing_that_is_there(self, rig):
        rig = rig()
        rig.filled(0)
        rig.store().create_collection("notes", UNIT)
        assert rig.calls("collections.create") + rig.calls("index.create") == 0

    @pytest.mark.parametrize(
        ("vectors", "words"),
        [
            ({"size": 768, "distance": "Cosine"}, ["768", "embedmill"]),
            ({"size": DIMENSION, "distance": "Manhattan"}, ["manhattan"]),
            ({"dense": {"size": DIMENSION, "distance": "Cosine"}}, ["named vectors", "dense"]),
        ],
    )
    def test_a_collection_of_somebody_else_is_refused_with_a_remedy(self, rig, vectors, words):
        rig = rig()
        rig.server.state.create("notes", {"vectors": vectors})
        store = rig.store()
        with pytest.raises(RefusedError) as refusal:
            store.create_collection("notes", UNIT)
        assert all(word in str(refusal.value) for word in ["notes", *words])
        assert "drop" in refusal.value.hint
        with pytest.raises(RefusedError):
            store.upsert("notes", records(1))

    def test_two_writers_that_create_at_once_both_have_it(self, rig):
        rig = rig(Fault(at="collections.get", do="not-found"))
        first, second = rig.store(), rig.store()
        second.create_collection("notes", UNIT)
        rig.server.plan.calls.clear()
        # The first one looks, and sees nothing yet.
        first.create_collection("notes", UNIT)
        assert rig.calls("collections.create") == 1
        first.upsert("notes", records(2))
        assert second.count("notes") == 2

    def test_a_collection_that_vanished_is_refused_and_not_made_anew(self, rig):
        rig = rig()
        store = rig.filled(2)
        rig.server.state.delete("notes")
        with pytest.raises(RefusedError) as gone:
            store.upsert("notes", records(2))
        assert gone.value.code == "no-collection"
        assert rig.server.state.collections == {}

    def test_of_another_dimension_behind_our_back_nothing_is_taken_and_the_run_stops(self, rig):
        rig = rig()
        store = rig.filled(0)
        rig.server.state.delete("notes")
        vectors = {"size": 2 * DIMENSION, "distance": "Cosine"}
        rig.server.state.create("notes", {"vectors": vectors})
        with pytest.raises(StopRunError, match="expected dim: 32, got 16"):
            store.upsert("notes", records(20))
        assert rig.calls("points.upsert") == 1


class TestUpserts:
    def test_bad_records_are_found_by_halving_and_the_others_are_stored(self, rig):
        rig = rig()
        store = rig.filled(0)
        rig.plan("points.upsert", "poison", times=0, value="poison")
        batch = records(200)
        for row in (0, 77, 199):
            batch.payloads[row]["text"] = f"poison {row}"
        rejections = store.upsert("notes", batch)
        assert [(r.row, r.code) for r in rejections] == [
            (row, "refused-by-store") for row in (0, 77, 199)
        ]
        assert "cannot be indexed" in rejections[0].message
        assert rig.ids() == as_text(set(batch.ids) - {batch.ids[row] for row in (0, 77, 199)})
        assert rig.calls("points.upsert") < 60

    def test_rows_of_both_kinds_of_rejection_are_those_of_the_batch(self, rig):
        rig = rig()
        store = rig.filled(0)
        rig.plan("points.upsert", "poison", times=0, value="poison")
        batch = records(10)
        batch.vectors[2] = np.nan
        batch.payloads[5]["text"] = "poison"
        rejections = store.upsert("notes", batch)
        assert [(r.row, r.code) for r in rejections] == [(2, "not-finite"), (5, "refused-by-store")]

    def test_when_not_one_record_passes_the_run_stops_soon(self, rig):
        rig = rig()
        store = rig.filled(0, records_per_request=20)
        rig.plan("points.upsert", "poison", times=0, value="text")
        with pytest.raises(StopRunError, match="none of 20 records"):
            store.upsert("notes", records(1000))
        assert rig.calls("points.upsert") < 50

    def test_a_request_too_large_for_a_proxy_is_halved_until_it_passes(self, rig):
        rig = rig()
        store = rig.filled(0)
        rig.plan("points.upsert", "too-many", times=0, count=30)
        assert list(store.upsert("notes", records(100))) == []
        assert len(rig.ids()) == 100

    def test_requests_stay_under_the_bytes_and_the_records_of_the_settings(self, rig):
        rig = rig()
        store = rig.filled(0, request_bytes=2**20, records_per_request=50)
        store.upsert("notes", records(20, text="x" * 300_000))
        assert rig.calls("points.upsert") == 7
        store.upsert("notes", records(101))
        assert rig.calls("points.upsert") == 10

    def test_a_record_over_the_bytes_of_a_request_travels_alone(self, rig):
        rig = rig()
        store = rig.filled(0, request_bytes=2**20)
        batch = records(3)
        batch.payloads[1]["text"] = "x" * 3 * 2**20
        assert list(store.upsert("notes", batch)) == []
        assert rig.calls("points.upsert") == 3

    def test_the_servers_own_limits_are_kept_to(self, rig):
        strict = {"enabled": True, "upsert_max_batchsize": 10, "max_query_limit": 7}
        rig = rig(strict_mode=strict)
        store = rig.filled(25)
        assert len(rig.server.requests) < 20
        assert len(store.fetch("notes", record_ids(25)).ids) == 25
        assert len(set(store.ids("notes"))) == 25
        with pytest.raises(RefusedError, match="Limit exceeded 8 > 7"):
            store.search("notes", unit_vectors(1)[0], 8)

    def test_a_full_collection_stops_the_run_instead_of_burying_the_rest(self, rig):
        rig = rig(strict_mode={"enabled": True, "max_points_count": 30})
        store = rig.filled(25)
        with pytest.raises(StopRunError, match="limit of 30"):
            store.upsert("notes", records(50))

    def test_limits_that_are_switched_off_are_none(self, rig):
        rig = rig(strict_mode={"enabled": False, "upsert_max_batchsize": 1})
        store = rig.filled(0)
        store.upsert("notes", records(20))
        assert rig.calls("points.upsert") == 1

    def test_floats_arrive_as_they_were(self, rig):
        rig = rig()
        store = rig.store()
        store.create_collection("notes", CollectionSpec(DIMENSION, "dot", normalised=False))
        vectors = np.random.default_rng(3).normal(size=(50, DIMENSION)).astype(np.float32)
        vectors[0, :4] = [1e-38, -3.4e38 / 1e21, 1.17549435e-38, -0.0]
        batch = VectorBatch(record_ids(50), vectors, [{}] * 50)
        store.upsert("notes", batch)
        assert np.array_equal(store.fetch("notes", batch.ids).vectors, vectors)


class TestReading:
    @pytest.mark.parametrize(
        ("where", "rows"),
        [
            ({"metadata.lang": "de"}, {1, 3, 5, 7, 9}),
            ({"metadata.lang": ["de", "en"], "metadata.year": 2003}, {3, 8}),
            ({"metadata.year": [2000, 2001.0]}, {0, 1, 5, 6}),
            ({"doc_id": "doc-4"}, {4}),
            ({"metadata.absent": "x"}, set()),
            ({"lang": "de"}, set()),
        ],
        ids=str,
    )
    def test_a_filter_reaches_into_the_metadata(self, rig, where, rows):
        store = rig().filled(10)
        hits = store.search("notes", unit_vectors(1, 9)[0], 10, where)
        assert {hit.payload["doc_id"] for hit in hits} == {f"doc-{row}" for row in rows}

    @pytest.mark.parametrize("key", ['a"b', "a\\b", ""])
    def test_a_key_that_no_path_can_hold_is_refused(self, rig, key):
        store = rig().filled(1)
        with pytest.raises(RefusedError):
            store.search("notes", unit_vectors(1)[0], 1, {key: "x"})

    def test_what_is_indexed_may_be_filtered_on_where_nothing_else_may(self, rig):
        strict = {"enabled": True, "unindexed_filtering_retrieve": False}
        rig = rig(strict_mode=strict)
        store = rig.filled(10, payload_indexes=("lang", "year:integer"))
        query = unit_vectors(1)[0]
        assert len(store.search("notes", query, 10, {"metadata.lang": "de"})) == 5
        assert len(store.search("notes", query, 10, {"metadata.year": 2001})) == 2
        assert len(store.search("notes", query, 10, {"doc_id": "doc-1", "chunk_index": 0})) == 1
        with pytest.raises(RefusedError, match='Index required but not found for "uri"'):
            store.search("notes", query, 10, {"uri": "x"})

    def test_a_server_that_forbids_exact_counts_is_refused_in_its_own_words(self, rig):
        rig = rig(strict_mode={"enabled": True, "search_allow_exact": False})
        store = rig.filled(3)
        assert len(store.search("notes", unit_vectors(1)[0], 3)) == 3
        with pytest.raises(RefusedError, match="Exact search disabled"):
            store.count("notes")

    def test_how_a_search_is_made_follows_the_settings(self, rig):
        rig = rig(
            strict_mode={"enabled": True, "search_allow_exact": False, "search_max_hnsw_ef": 9}
        )
        rig.filled(3)
        query = unit_vectors(1)[0]
        with pytest.raises(RefusedError, match="Exact search"):
            rig.store(exact_search=True).search("notes", query, 1)
        with pytest.raises(RefusedError, match="hnsw_ef"):
            rig.store(search_ef=10).search("notes", query, 1)
        assert rig.store(search_ef=9).search("notes", query, 1)


class TestAliases:
    def test_a_switch_is_one_request_with_one_action(self, rig):
        rig = rig()
        store = rig.filled(1)
        store.create_collection("newer", UNIT)
        store.set_alias("live", "notes")
        rig.server.plan.calls.clear()
        store.set_alias("live", "newer")
        assert rig.calls("aliases.update") == 1

    def test_a_writer_is_not_led_astray_by_a_switch(self, rig):
        rig = rig()
        store = rig.filled(2)
        store.create_collection("newer", UNIT)
        store.set_alias("live", "notes")
        with pytest.raises(RefusedError):
            store.upsert("live", records(5))
        store.set_alias("live", "newer")
        store.upsert("notes", records(5))
        assert (store.count("notes"), store.count("live")) == (5, 0)

    def test_a_refused_switch_keeps_the_alias(self, rig, monkeypatch):
        rig = rig()
        store = rig.filled(2)
        store.create_collection("newer", UNIT)
        store.set_alias("live", "notes")
        state = rig.server.state
        take = state.change_aliases
        # It goes away after it was looked at; of several actions the server would do the first.
        monkeypatch.setattr(state, "change_aliases", lambda a: state.delete("newer") and take(a))
        with pytest.raises(RefusedError):
            store.set_alias("live", "newer")
        assert store.alias_target("live") == "notes"


class TestBulkLoad:
    @pytest.mark.parametrize(
        ("mode", "before", "links"), [("auto", {}, 0), ("on", {}, 0), ("off", {}, 16)]
    )
    def test_a_new_collection_has_no_graph_until_its_load_is_over(self, rig, mode, before, links):
        rig = rig()
        store = rig.filled(3, bulk_load=mode, **before)
        assert graph(rig) == links
        store.finish("notes")
        assert graph(rig) == 16

    def test_a_graph_of_ones_own_is_what_comes_back(self, rig):
        rig = rig()
        rig.filled(3, graph_m=32).finish("notes")
        assert graph(rig) == 32

    def test_no_graph_at_all_stays_none(self, rig):
        rig = rig()
        rig.filled(3, graph_m=0).finish("notes")
        assert graph(rig) == 0

    def test_a_collection_with_records_keeps_its_graph(self, rig):
        rig = rig()
        rig.filled(3).finish("notes")
        rig.store(bulk_load="on").create_collection("notes", UNIT)
        assert graph(rig) == 16

    def test_an_empty_one_is_put_off_again_only_where_asked(self, rig):
        rig = rig()
        rig.filled(0).finish("notes")
        rig.store(bulk_load="auto").create_collection("notes", UNIT)
        assert graph(rig) == 16
        rig.store(bulk_load="on").create_collection("notes", UNIT)
        assert graph(rig) == 0

    def test_nothing_is_published_whose_graph_nobody_builds(self, rig):
        rig = rig()
        rig.filled(3).set_alias("live", "notes")
        assert graph(rig) == 16

    def test_it_is_waited_for(self, rig):
        rig, slept = rig(optimising=3), []
        rig.filled(3, sleep=slept.append).finish("notes")
        assert len(slept) >= 3
        assert rig.server.state.described("notes")["status"] == "green"

    def test_a_deadline_ends_the_wait(self, rig):
        rig = rig(optimising=10**6)
        times = iter(range(1000))
        store = rig.filled(3, sleep=lambda _: None, clock=lambda: next(times))
        with pytest.raises(TransientError, match="still yellow after 5 seconds"):
            store.finish("notes", deadline_s=5)

    def test_a_red_collection_is_not_published(self, rig):
        rig = rig()
        store = rig.filled(3)
        rig.server.state.status = "red"
        with pytest.raises(StopRunError, match="red"):
            store.set_alias("live", "notes")
        with pytest.raises(StopRunError, match="red"):
            store.finish("notes")
        assert rig.server.state.aliases == {}
        # It can still be read.
        assert store.count("notes") == 3


def graph(rig):
    return rig.server.state.described("notes")["config"]["hnsw_config"]["m"]


class TestKeys:
    def test_the_right_key_is_sent_and_a_wrong_one_stops_the_run(self, rig, monkeypatch):
        rig = rig(api_key="zebra-crossing")
        store = rig.filled(2, api_key="${QDRANT_KEY}")
        assert store.count("notes") == 2
        monkeypatch.setenv("QDRANT_KEY", "wrong")
        for other in (rig.store(api_key="${QDRANT_KEY}"), rig.store()):
            with pytest.raises(StopRunError) as stopped:
                other.count("notes")
            assert stopped.value.code == "credentials"
            assert "store.api_key" in stopped.value.hint

    def test_a_key_that_may_only_read_reads(self, rig, monkeypatch):
        rig = rig(api_key="zebra-crossing", read_key="only-eyes")
        rig.filled(2, api_key="${QDRANT_KEY}")
        monkeypatch.setenv("QDRANT_KEY", "only-eyes")
        reader = rig.store(api_key="${QDRANT_KEY}")
        assert reader.count("notes") == 2
        with pytest.raises(StopRunError) as stopped:
            reader.upsert("notes", records(1))
        assert stopped.value.code == "credentials"


class TestGrpc:
    @pytest.fixture
    def front(self, rig):
        rig = rig()
        with grpc_front(rig.server) as (front, port):
            front.rig = rig
            front.store = rig.filled(0, prefer_grpc=True, grpc_port=port)
            yield front

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            ((500, "Service internal error"), OutcomeUnknownError),
            ((502, "connection reset"), OutcomeUnknownError),
            ((401, "Invalid API key"), StopRunError),
            ((403, "Forbidden"), StopRunError),
            ((404, "Collection `notes` doesn't exist!"), RefusedError),
            ((429, "Rate limiting exceeded"), RateLimitedError),
            ((500, "No space left on device"), StopRunError),
        ],
        ids=str,
    )
    def test_its_refusals_mean_the_same(self, front, refusal, kind):
        front.refusals = [refusal]
        with pytest.raises(kind) as failure:
            front.store.upsert("notes", records(30))
        assert type(failure.value) is kind
        assert front.calls == 1
        front.store.upsert("notes", records(30))
        assert front.rig.ids() == as_text(record_ids(30))

    def test_its_rate_limit_says_how_long_to_wait(self, front):
        front.refusals, front.retry_after = [(429, "slow down")], "4"
        with pytest.raises(RateLimitedError) as limited:
            front.store.upsert("notes", records(1))
        assert limited.value.retry_after == 4

    @pytest.mark.parametrize("status", [400, 413])
    def test_a_refused_batch_is_halved(self, front, status):
        front.refusals = [(status, "Wrong input: too large")] * 2
        assert list(front.store.upsert("notes", records(40))) == []
        assert len(front.rig.ids()) == 40

    @pytest.mark.parametrize("deed", ["acknowledged", "wait-timeout"])
    def test_only_what_is_completed_counts(self, front, deed):
        front.deeds = [Fault(at="points.upsert", do=deed)]
        with pytest.raises(OutcomeUnknownError):
            front.store.upsert("notes", records(3))

    def test_a_server_that_is_away_leaves_the_outcome_open(self, rig):
        rig = rig()
        store = rig.filled(0, prefer_grpc=True, grpc_port=1, timeout_s=2)
        with pytest.raises(OutcomeUnknownError):
            store.upsert("notes", records(3))

    def test_what_is_nested_too_deep_for_a_message_goes_by_rest(self, front):
        nested = "bottom"
        for _ in range(50):
            nested = {"in": nested}
        batch = records(3)
        batch.payloads[1]["nested"] = nested
        assert list(front.store.upsert("notes", batch)) == []
        assert (front.calls, front.rig.calls("points.upsert")) == (0, 1)
        assert list(front.store.fetch("notes", batch.ids).payloads) == list(batch.payloads)
