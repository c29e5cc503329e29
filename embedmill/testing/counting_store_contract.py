"""What even a store must do that only counts, as tests that anybody can run against their own.

See :mod:`embedmill.testing.vector_store_contract` for how to use them.
"""
# ruff: noqa: D102 (the name of a test says what it checks)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from embedmill.document import record_id
from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.payload import Payload
from embedmill.vector_store import (
    CollectionSpec,
    VectorBatch,
    VectorStore,
    confirmed_together,
)

DIMENSION = 16
UNIT = CollectionSpec(dimension=DIMENSION, metric="cosine", normalised=True)
OpenStore = Callable[[], VectorStore]


def record_ids(count: int, prefix: str = "doc") -> list[UUID]:
    """Ids as the pipeline makes them, the same on every call."""
    return [record_id(f"{prefix}-{row}", 0) for row in range(count)]


def unit_vectors(count: int, seed: int = 0, dimension: int = DIMENSION) -> Vectors:
    """Random directions, the same on every call."""
    vectors = np.random.default_rng(seed).normal(size=(count, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def a_batch(count: int, *, seed: int = 0, payloads: Sequence[Payload] | None = None) -> VectorBatch:
    """Good records; ids by row, so that two batches overwrite each other."""
    return VectorBatch(
        ids=record_ids(count),
        vectors=unit_vectors(count, seed),
        payloads=payloads or [{"doc_id": f"doc-{row}", "part": row % 3} for row in range(count)],
    )


class CountingContract:
    """What holds even for a store that only counts: names, specs, aliases, checks, counts."""

    @pytest.fixture
    def open_store(self) -> OpenStore:
        """Override: a function that opens the same store each time it is called."""
        raise NotImplementedError

    @pytest.fixture
    def store(self, open_store: OpenStore) -> Iterator[VectorStore]:
        """An open store with the empty collection ``notes`` of :data:`UNIT`."""
        store = open_store()
        store.create_collection("notes", UNIT)
        yield store
        store.close()

    def test_writing_the_same_records_again_adds_nothing(self, store: VectorStore) -> None:
        for _ in range(3):
            assert list(store.upsert("notes", a_batch(20))) == []
            assert store.count("notes") == 20

    def test_a_batch_far_over_the_limits_is_cut_and_stored_whole(self, store: VectorStore) -> None:
        count = 2 * store.limits.records + 3
        assert list(store.upsert("notes", a_batch(count))) == []
        assert store.count("notes") == count

    def test_empty_batches_change_nothing(self, store: VectorStore) -> None:
        empty = VectorBatch([], np.empty((0, DIMENSION), dtype=np.float32), [])
        assert list(store.upsert("notes", empty)) == []
        store.delete("notes", [])
        assert store.count("notes") == 0

    def test_deleting_takes_away_what_exists_and_forgives_what_does_not(
        self, store: VectorStore
    ) -> None:
        store.upsert("notes", a_batch(10))
        store.delete("notes", [*record_ids(4), *record_ids(3, "absent"), *record_ids(1)])
        assert store.count("notes") == 6
        store.delete("notes", record_ids(4))
        assert store.count("notes") == 6
        store.upsert("notes", a_batch(5))
        assert store.count("notes") == 10

    def test_collections_are_listed_and_counted_apart(self, store: VectorStore) -> None:
        store.create_collection("archive", UNIT)
        store.upsert("archive", a_batch(3))
        assert list(store.collections()) == ["archive", "notes"]
        assert (store.count("archive"), store.count("notes")) == (3, 0)

    def test_creating_a_collection_again_keeps_its_records(self, store: VectorStore) -> None:
        store.upsert("notes", a_batch(3))
        store.create_collection("notes", UNIT)
        assert store.count("notes") == 3

    @pytest.mark.parametrize(
        ("other", "words"),
        [
            (CollectionSpec(DIMENSION + 8, "cosine", normalised=True), ["16", "24"]),
            (CollectionSpec(DIMENSION, "dot", normalised=True), ["cosine", "dot"]),
            (CollectionSpec(DIMENSION, "cosine", normalised=False), ["not normalised"]),
        ],
    )
    def test_another_spec_under_the_same_name_is_refused_and_both_are_named(
        self, store: VectorStore, other: CollectionSpec, words: list[str]
    ) -> None:
        store.upsert("notes", a_batch(3))
        with pytest.raises(RefusedError) as refusal:
            store.create_collection("notes", other)
        assert all(word in str(refusal.value) for word in ["notes", *words])
        assert store.count("notes") == 3

    @pytest.mark.parametrize("name", ["", ".", "..", ".hidden", "a/b", "a b", "ü", "x" * 201])
    def test_names_that_a_store_could_trip_over_are_refused(
        self, store: VectorStore, name: str
    ) -> None:
        with pytest.raises(RefusedError):
            store.create_collection(name, UNIT)
        with pytest.raises(RefusedError):
            store.set_alias(name, "notes")

    def test_a_collection_that_does_not_exist_is_refused_by_every_call(
        self, store: VectorStore
    ) -> None:
        calls: list[Callable[[], object]] = [
            lambda: store.upsert("absent", a_batch(1)),
            lambda: store.delete("absent", record_ids(1)),
            lambda: store.count("absent"),
            lambda: store.fetch("absent", record_ids(1)),
            lambda: store.search("absent", unit_vectors(1)[0], 1),
            lambda: list(store.ids("absent")),
        ]
        for call in calls:
            with pytest.raises(RefusedError):
                call()

    def test_an_alias_points_where_it_was_last_set(self, store: VectorStore) -> None:
        store.create_collection("newer", UNIT)
        store.upsert("newer", a_batch(2))
        assert store.alias_target("live") is None
        store.set_alias("live", "notes")
        assert (store.alias_target("live"), store.count("live")) == ("notes", 0)
        store.set_alias("live", "newer")
        assert (store.alias_target("live"), store.count("live")) == ("newer", 2)

    def test_an_alias_to_what_does_not_exist_is_refused_and_keeps_its_target(
        self, store: VectorStore
    ) -> None:
        store.set_alias("live", "notes")
        with pytest.raises(RefusedError):
            store.set_alias("live", "absent")
        assert store.alias_target("live") == "notes"

    def test_no_name_is_both_alias_and_collection(self, store: VectorStore) -> None:
        store.set_alias("live", "notes")
        with pytest.raises(RefusedError):
            store.create_collection("live", UNIT)
        with pytest.raises(RefusedError):
            store.set_alias("notes", "notes")

    def test_what_writes_does_not_take_an_alias(self, store: VectorStore) -> None:
        store.set_alias("live", "notes")
        with pytest.raises(RefusedError):
            store.upsert("live", a_batch(1))
        with pytest.raises(RefusedError):
            store.delete("live", record_ids(1))

    def test_dropping_is_refused_while_an_alias_points_there(self, store: VectorStore) -> None:
        store.upsert("notes", a_batch(2))
        store.set_alias("live", "notes")
        with pytest.raises(RefusedError, match="live"):
            store.drop_collection("notes")
        assert store.count("notes") == 2

    def test_dropping_removes_the_collection_and_forgives_an_absent_one(
        self, store: VectorStore
    ) -> None:
        store.upsert("notes", a_batch(2))
        store.drop_collection("notes")
        store.drop_collection("notes")
        assert list(store.collections()) == []
        other = CollectionSpec(8, "dot", normalised=False)
        store.create_collection("notes", other)
        assert store.count("notes") == 0

    @pytest.mark.parametrize(
        ("value", "code"),
        [
            (np.nan, "not-finite"),
            (np.inf, "not-finite"),
            (0.0, "zero-vector"),
            (1.0, "not-normalised"),
        ],
    )
    def test_a_bad_vector_is_rejected_and_its_neighbours_are_stored(
        self, store: VectorStore, value: float, code: str
    ) -> None:
        batch = a_batch(5)
        batch.vectors[2] = value
        rejections = store.upsert("notes", batch)
        assert [(r.row, r.code) for r in rejections] == [(2, code)]
        assert store.count("notes") == 4

    def test_one_bad_component_is_enough(self, store: VectorStore) -> None:
        batch = a_batch(3)
        batch.vectors[1, 7] = np.nan
        assert [r.row for r in store.upsert("notes", batch)] == [1]

    def test_a_wrong_dimension_rejects_every_row(self, store: VectorStore) -> None:
        wrong = VectorBatch(record_ids(3), unit_vectors(3, dimension=8), [{}, {}, {}])
        rejections = store.upsert("notes", wrong)
        assert [(r.row, r.code) for r in rejections] == [(row, "dimension") for row in range(3)]
        assert store.count("notes") == 0

    @pytest.mark.parametrize(
        "value",
        [
            float("nan"),
            [1.0, float("inf")],
            {"deep": [{"er": float("nan")}]},
            b"bytes",
            2**63,
            -(2**63) - 1,
            2**70,
            "\ud800",
            {"\udcff": 1},
            {1: "a"},
            {"a set"},
            np.int64(3),
            np.float32(0.5),
            record_ids(1)[0],
        ],
        ids=repr,
    )
    def test_a_payload_that_a_store_would_mangle_is_rejected_and_its_neighbours_are_stored(
        self, store: VectorStore, value: object
    ) -> None:
        batch = a_batch(5, payloads=[{"ok": row} for row in range(5)])
        batch.payloads[3]["bad"] = value
        rejections = store.upsert("notes", batch)
        assert [(r.row, r.code) for r in rejections] == [(3, "payload-type")]
        assert store.count("notes") == 4

    def test_a_payload_nested_too_deep_is_rejected(self, store: VectorStore) -> None:
        nested: Any = "bottom"
        for _ in range(130):
            nested = {"in": nested}
        batch = a_batch(2, payloads=[nested, {}])
        assert [(r.row, r.code) for r in store.upsert("notes", batch)] == [(0, "payload-type")]
        assert store.count("notes") == 1

    def test_a_payload_over_the_limit_is_rejected_and_its_neighbours_are_stored(
        self, store: VectorStore
    ) -> None:
        text = "x" * store.limits.payload_bytes
        rejections = store.upsert("notes", a_batch(3, payloads=[{}, {"text": text}, {}]))
        assert [(r.row, r.code) for r in rejections] == [(1, "payload-too-large")]
        assert store.count("notes") == 2

    def test_of_two_records_with_one_id_the_last_is_kept(self, store: VectorStore) -> None:
        ids = record_ids(3)
        batch = VectorBatch([ids[0], ids[1], ids[0]], unit_vectors(3), [{}, {}, {}])
        rejections = store.upsert("notes", batch)
        assert [(r.row, r.code) for r in rejections] == [(0, "duplicate-id")]
        assert store.count("notes") == 2

    def test_counts_aliases_and_specs_are_there_after_opening_again(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        store.upsert("notes", a_batch(30))
        store.delete("notes", record_ids(10))
        store.set_alias("live", "notes")
        store.close()
        again = open_store()
        assert (again.count("live"), again.alias_target("live")) == (20, "notes")
        with pytest.raises(RefusedError):
            again.create_collection("notes", CollectionSpec(8, "cosine", normalised=True))
        again.upsert("notes", a_batch(15))
        assert again.count("notes") == 30
        again.close()

    def test_what_is_confirmed_together_is_found_at_once_and_after_opening_again(
        self, store: VectorStore, open_store: OpenStore
    ) -> None:
        with confirmed_together(store, "notes"):
            store.upsert("notes", a_batch(30))
            assert store.count("notes") == 30
            store.delete("notes", record_ids(10))
            assert store.count("notes") == 20
        with suppress(ZeroDivisionError), confirmed_together(store, "notes"):
            store.delete("notes", record_ids(12))
            raise ZeroDivisionError
        with confirmed_together(store, "notes"):
            assert store.count("notes") == 18
        store.close()
        again = open_store()
        assert again.count("notes") == 18
        again.close()

    def test_closing_twice_is_fine_and_everything_after_it_is_refused(
        self, store: VectorStore
    ) -> None:
        store.close()
        store.close()
        with pytest.raises(RefusedError):
            store.count("notes")
        with pytest.raises(RefusedError):
            store.upsert("notes", a_batch(1))
