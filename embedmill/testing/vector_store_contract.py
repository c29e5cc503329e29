"""What every vector store must do, as tests that anybody can run against a store of their own.

Subclass in a test module and override one fixture::

    class TestMyStore(VectorStoreContract):
        @pytest.fixture
        def open_store(self, tmp_path):
            return lambda: MyStore(tmp_path)

``open_store`` opens the same store again and again: what one instance wrote and closed, the next
one sees. A store that only counts takes :class:`CountingContract` instead, one that several
processes use at once :class:`SharedStoreContract`.
"""
# ruff: noqa: D102 (the name of a test says what it checks)

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from uuid import UUID

import numpy as np
import pytest

from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.payload import Filter, Payload, conditions_of, matches
from embedmill.recipe import Metric
from embedmill.testing.counting_store_contract import (
    DIMENSION,
    CountingContract,
    OpenStore,
    a_batch,
    record_ids,
    unit_vectors,
)
from embedmill.vector_store import CollectionSpec, VectorBatch, VectorStore

__all__ = [
    "CountingContract",
    "OpenStore",
    "SharedStoreContract",
    "VectorStoreContract",
    "brute_force",
]

# Of stored float32 components of norm 1; stores may normalise again.
TOLERANCE = 1e-5


def brute_force(
    batch: VectorBatch, query: Vectors, k: int, metric: Metric, where: Filter | None = None
) -> list[tuple[UUID, float]]:
    """The right answer, in float64."""
    conditions = conditions_of(where)
    rows = [row for row, payload in enumerate(batch.payloads) if matches(payload, conditions)]
    vectors, exact = batch.vectors[rows].astype(np.float64), query.astype(np.float64)
    if metric == "euclid":
        scores = np.linalg.norm(vectors - exact, axis=1)
        order = np.argsort(scores)
    else:
        scores = vectors @ exact
        if metric == "cosine":
            scores /= np.linalg.norm(vectors, axis=1) * np.linalg.norm(exact)
        order = np.argsort(-scores)
    return [(batch.ids[rows[place]], float(scores[place])) for place in order[:k]]


def _values(row: int) -> Payload:
    """Values of all kinds that a filter may ask for, and some that none can."""
    numbers = [3, 3.0, "3", 4.5, True, None, 2**60 + 1, 2**60]
    return {
        "lang": ["en", "de", "fr", ""][row % 4],
        "number": numbers[row % 8],
        "flag": [True, False, 1, 0, "yes"][row % 5],
        "tags": [["a"], ["b", "c"], [], None][row % 4],
        "a.b": "dotted" if row % 3 else "plain",
        "a": {"b": "dotted"},
        "ключ 键": "ü" if row % 6 else "u",
    }


class VectorStoreContract(CountingContract):
    """What every store must do that people search in."""

    def test_a_record_comes_back_as_it_was_written(self, store: VectorStore) -> None:
        batch = a_batch(20)
        store.upsert("notes", batch)
        fetched = store.fetch("notes", batch.ids)
        assert list(fetched.ids) == list(batch.ids)
        np.testing.assert_allclose(fetched.vectors, batch.vectors, atol=TOLERANCE)
        assert fetched.vectors.dtype == np.float32
        assert list(fetched.payloads) == list(batch.payloads)

    def test_overwriting_replaces_vector_and_payload_whole(self, store: VectorStore) -> None:
        store.upsert("notes", a_batch(3, payloads=[{"old": 1, "both": 1}] * 3))
        newer = a_batch(3, seed=7, payloads=[{"both": 2}] * 3)
        store.upsert("notes", newer)
        fetched = store.fetch("notes", newer.ids)
        assert list(fetched.payloads) == [{"both": 2}] * 3
        np.testing.assert_allclose(fetched.vectors, newer.vectors, atol=TOLERANCE)

    def test_fetching_follows_the_order_asked_for_and_leaves_out_the_absent(
        self, store: VectorStore
    ) -> None:
        batch = a_batch(5)
        store.upsert("notes", batch)
        asked = [batch.ids[3], record_ids(1, "absent")[0], batch.ids[0]]
        fetched = store.fetch("notes", asked)
        assert list(fetched.ids) == [batch.ids[3], batch.ids[0]]
        np.testing.assert_allclose(fetched.vectors, batch.vectors[[3, 0]], atol=TOLERANCE)
        nothing = store.fetch("notes", [])
        assert (len(nothing.ids), nothing.vectors.shape) == (0, (0, DIMENSION))

    def test_every_id_is_listed_once(self, store: VectorStore) -> None:
        store.upsert("notes", a_batch(700))
        store.delete("notes", record_ids(100))
        listed = list(store.ids("notes"))
        assert len(listed) == 600
        assert set(listed) == set(record_ids(700)[100:])

    def test_a_deleted_record_is_found_no_more(self, store: VectorStore) -> None:
        batch = a_batch(5)
        store.upsert("notes", batch)
        store.delete("notes", [batch.ids[2]])
        assert batch.ids[2] not in {hit.id for hit in store.search("notes", batch.vectors[2], 5)}

    @pytest.mark.parametrize("metric", ["cosine", "dot", "euclid"])
    @pytest.mark.parametrize("normalised", [True, False])
    def test_search_equals_brute_force(
        self, store: VectorStore, metric: Metric, *, normalised: bool
    ) -> None:
        store.create_collection("other", CollectionSpec(DIMENSION, metric, normalised))
        batch = a_batch(400)
        if not normalised:
            batch.vectors[:] *= np.linspace(0.5, 3, 400, dtype=np.float32)[:, np.newaxis]
        store.upsert("other", batch)
        for query in unit_vectors(5, seed=99) * 2:
            hits = store.search("other", query, 10)
            right = brute_force(batch, query, 10, metric)
            assert [hit.id for hit in hits] == [record for record, _ in right]
            scores = [hit.score for hit in hits]
            np.testing.assert_allclose(scores, [score for _, score in right], atol=1e-4)
            assert hits[0].payload == batch.payloads[batch.ids.index(hits[0].id)]

    @pytest.mark.parametrize(
        "where",
        [
            {},
            {"lang": "en"},
            {"lang": ["en", "fr"]},
            {"lang": []},
            {"lang": "absent"},
            {"absent": "x"},
            {"number": 3},
            {"number": 3.0},
            {"number": [3, "3", 4.5]},
            {"number": 2**60 + 1},
            {"flag": True},
            {"flag": False},
            {"flag": 1},
            {"flag": [True, "yes"]},
            {"tags": "b"},
            {"tags": ["a", "c"]},
            {"lang": "en", "number": [1, 2, 3]},
            {"a.b": "dotted"},
            {"metadata.tenant": "blue"},
            {"metadata.tenant": ["red", "blue"], "metadata.year": 2003},
            {"metadata.x.y": True},
            {"ключ 键": "ü"},
            {"metadata.lang": "de"},
            {"metadata.lang": ["en", "fr"], "metadata.number": 3},
            {"metadata.number": [3, "3", 4.5]},
            {"metadata.number": 2**60 + 1},
            {"metadata.flag": True},
            {"metadata.tags": ["a", "c"]},
            {"metadata.a.b": "dotted"},
            {"metadata.ключ 键": "ü"},
            {"metadata.absent": "x"},
            {"metadata": "x"},
        ],
        ids=repr,
    )
    def test_a_filter_equals_brute_force(self, store: VectorStore, where: Filter) -> None:
        # What is in the metadata of a record is other than what is beside it.
        payloads = [
            {
                **_values(row),
                "metadata": {
                    **_values(row + 1),
                    "tenant": ["red", "blue", "green"][row % 3],
                    "year": 2000 + row % 5,
                    "x.y": row % 2 == 0,
                },
            }
            for row in range(60)
        ]
        batch = a_batch(60, payloads=payloads)
        store.upsert("notes", batch)
        query = unit_vectors(1, seed=5)[0]
        hits = store.search("notes", query, 60, where)
        right = brute_force(batch, query, 60, "cosine", where)
        assert [hit.id for hit in hits] == [record for record, _ in right]

    def test_one_customers_records_are_never_found_for_another(self, store: VectorStore) -> None:
        customers = ["acme", "Acme", "acme ", "ümläut", "", "7"]
        payloads: list[Payload] = [
            {"doc_id": f"{row}", "metadata": {"tenant": customers[row % len(customers)]}}
            for row in range(60)
        ]
        batch = a_batch(60, payloads=payloads)
        store.upsert("notes", batch)
        query = unit_vectors(1, seed=5)[0]
        for customer in [*customers, "nobody"]:
            where: Filter = {"metadata.tenant": customer}
            found = {hit.id for hit in store.search("notes", query, 60, where)}
            assert found == {record for record, _ in brute_force(batch, query, 60, "cosine", where)}
            assert len(found) == (10 if customer in customers else 0)

    def test_between_switches_readers_see_one_version_whole(self, store: VectorStore) -> None:
        _two_versions(store)
        for number in range(6):
            name = ("notes", "newer")[number % 2]
            store.set_alias("live", name)
            assert _seen(store) == (20, {name})

    @pytest.mark.parametrize("value", [float("nan"), None, b"x", {"a": 1}, [None], 2**64])
    def test_a_filter_that_cannot_be_compared_is_refused(
        self, store: VectorStore, value: str
    ) -> None:
        with pytest.raises(RefusedError):
            store.search("notes", unit_vectors(1)[0], 1, {"key": value})

    def test_a_query_that_could_only_find_nonsense_is_refused(self, store: VectorStore) -> None:
        store.upsert("notes", a_batch(3))
        for query in (
            unit_vectors(1, dimension=8)[0],
            np.zeros(DIMENSION, dtype=np.float32),
            np.full(DIMENSION, np.nan, dtype=np.float32),
        ):
            with pytest.raises(RefusedError):
                store.search("notes", query, 1)
        with pytest.raises(RefusedError):
            store.search("notes", unit_vectors(1)[0], 0)

    def test_searching_an_empty_collection_finds_nothing(self, store: VectorStore) -> None:
        assert list(store.search("notes", unit_vectors(1)[0], 5)) == []
        assert list(store.ids("notes")) == []

    def test_readers_of_an_alias_see_its_target(self, store: VectorStore) -> None:
        batch = a_batch(3)
        store.upsert("notes", batch)
        store.set_alias("live", "notes")
        assert store.search("live", batch.vectors[1], 1)[0].id == batch.ids[1]
        assert list(store.fetch("live", batch.ids[:1]).ids) == batch.ids[:1]
        assert len(list(store.ids("live"))) == 3

    def test_payloads_of_all_kinds_come_back_equal(self, store: VectorStore) -> None:
        payloads: list[Payload] = [
            {},
            {"doc_id": "Ωμέγα/日本語 \U0001f600\u202e.md", "nul": "a\0b", "": "empty key"},
            {"nested": {"list": [1, 2.5, None, True, "x", {"y": []}]}, "none": None},
            {"big": 2**63 - 1, "small": -(2**63), "tiny": 5e-324, "huge": 1.7e308, "zero": -0.0},
            {'dots.in[key] "quoted" back\\slash': 1},
            {"text": "long " * (min(500_000, store.limits.payload_bytes - 2_000) // 5)},
        ]
        batch = a_batch(len(payloads), payloads=payloads)
        assert list(store.upsert("notes", batch)) == []
        assert list(store.fetch("notes", batch.ids).payloads) == payloads

    def test_changing_a_payload_afterwards_changes_nothing_that_is_stored(
        self, store: VectorStore
    ) -> None:
        batch = a_batch(1, payloads=[{"list": [1]}])
        store.upsert("notes", batch)
        batch.payloads[0]["list"].append(2)
        store.fetch("notes", batch.ids).payloads[0]["list"].append(3)
        assert store.fetch("notes", batch.ids).payloads[0] == {"list": [1]}

    def test_of_two_records_with_one_id_the_last_is_found(self, store: VectorStore) -> None:
        record = record_ids(1)[0]
        store.upsert("notes", VectorBatch([record] * 2, unit_vectors(2), [{"n": 1}, {"n": 2}]))
        assert store.fetch("notes", [record]).payloads[0] == {"n": 2}

    def test_records_are_there_after_opening_again(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        batch = a_batch(300)
        store.upsert("notes", batch)
        store.close()
        again = open_store()
        fetched = again.fetch("notes", batch.ids)
        assert list(fetched.payloads) == list(batch.payloads)
        np.testing.assert_allclose(fetched.vectors, batch.vectors, atol=TOLERANCE)
        assert again.search("notes", batch.vectors[9], 1)[0].id == batch.ids[9]
        again.close()


class SharedStoreContract(VectorStoreContract):
    """What stores must do beside that several processes use at once."""

    def test_what_was_confirmed_is_there_although_nobody_closed(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        batch = a_batch(30)
        store.upsert("notes", batch)
        store.delete("notes", batch.ids[:10])
        store.set_alias("live", "notes")
        # The writer was killed: its connections are open, and nobody says goodbye.
        again = open_store()
        assert again.count("notes") == 20
        assert list(again.fetch("live", batch.ids).ids) == list(batch.ids[10:])
        again.close()

    def test_two_writers_of_one_collection_do_not_disturb_each_other(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        batch, others = a_batch(40), [open_store(), open_store()]
        threads = [
            threading.Thread(target=writer.upsert, args=("notes", batch.take(range(half, 40, 2))))
            for half, writer in enumerate(others)
        ]
        _run(threads)
        assert store.count("notes") == 40
        assert set(store.ids("notes")) == set(batch.ids)
        for writer in others:
            writer.close()

    def test_readers_during_switches_see_one_version_whole(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        _two_versions(store)
        store.set_alias("live", "notes")
        ended, readers = threading.Event(), [open_store(), open_store()]
        # Connected before the first switch: that may take longer than all of them.
        seen = [_seen(reader) for reader in readers]

        def read(reader: VectorStore) -> None:
            while not ended.is_set():
                seen.append(_seen(reader))

        def switch() -> None:
            # Until both were seen; that it ends at all shows in the assertion.
            for number in range(4000):
                store.set_alias("live", ("newer", "notes")[number % 2])
                if number > 40 and len(seen) > 40 and _versions(seen) == {"notes", "newer"}:
                    break
            ended.set()

        _run(
            [
                *(threading.Thread(target=read, args=(r,)) for r in readers),
                threading.Thread(target=switch),
            ]
        )
        assert _versions(seen) == {"notes", "newer"}
        assert all(count == 20 and len(versions) == 1 for count, versions in seen)
        for reader in readers:
            reader.close()


def _two_versions(store: VectorStore) -> None:
    """Two collections of 20 records that say where they are."""
    store.create_collection("newer", CollectionSpec(DIMENSION, "cosine", normalised=True))
    for name in ("notes", "newer"):
        store.upsert(name, a_batch(20, payloads=[{"version": name}] * 20))
        # As before a publication: a service may take a moment until searches see them.
        assert store.count(name) == 20


def _seen(store: VectorStore) -> tuple[int, set[str]]:
    """How many records a reader of the alias finds, and of which versions."""
    hits = store.search("live", unit_vectors(1)[0], 30)
    return len(hits), {hit.payload["version"] for hit in hits}


def _versions(seen: Iterable[tuple[int, set[str]]]) -> set[str]:
    return {name for _, versions in seen for name in versions}


def _run(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
