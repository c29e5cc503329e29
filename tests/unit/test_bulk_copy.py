"""Copies that Pinecone reads from a bucket: one import, whatever happens meanwhile."""

import itertools
import urllib.request

import orjson
import pytest
from s3_server import s3_server

pytest.importorskip("pinecone")

from embedmill.errors import CountsMismatchError, EmbedmillError, RefusedError, StopRunError
from embedmill.executor import InlineExecutor
from embedmill.pinecone_settings import PineconeSettings
from embedmill.testing.counting_store_contract import record_ids, unit_vectors
from embedmill.testing.memory_workspace import MemoryWorkspace
from embedmill.testing.pinecone_server import PineconeServer, ServerOptions
from embedmill.vector_store import CollectionSpec, VectorBatch
from embedmill.vector_stores.pinecone import PineconeStore
from embedmill.vector_stores.pinecone_metadata import metadata_of
from embedmill.workspace import open_workspace
from pipelines.copy import CopyOptions, copy
from pipelines.run_options import RunOptions

TEXTS = {f"d{number}": f"one two three four five {number} six" for number in range(12)}


class Died(BaseException):
    """The process ends here."""


class BulkCopied:
    """A small index, a fake Pinecone, and a bucket that it reads."""

    def __init__(self, index):
        self.index = index
        self.place = {"url": "s3://acme/exports"}
        self.bucket = MemoryWorkspace()
        options = ServerOptions(bucket=self.read, clock=index.clock)
        self.server = PineconeServer(options=options)
        index.wrappers["bucket"] = lambda _: self.bucket

    def read(self, uri):
        assert uri.startswith("s3://acme/exports/")
        root = "s3://acme/exports"
        paths = [entry.path for entry in self.bucket.list("")]
        files = {f"{root}/{path}": self.bucket.read(path) for path in paths}
        return {path: data for path, data in files.items() if path.startswith(uri)}

    def settings(self, **bulk):
        bulk_import = {"bucket": self.place, "from_records": 5, **bulk}
        values = {
            "kind": "pinecone",
            "index": "docs",
            "api_key": "${FAKE_PINECONE_KEY}",
            "control_url": self.server.url,
            "count_settles_s": 0.0,
            "bulk_import": bulk_import,
        }
        return PineconeSettings.model_validate_json(orjson.dumps(values))

    def copy(self, *, overwrite=False, **bulk):
        executor = InlineExecutor()
        clock = self.index.clock
        options = RunOptions(clock=clock, sleep=clock.sleep)
        choices = CopyOptions(overwrite=overwrite)
        with self.index.seams():
            try:
                to = self.settings(**bulk)
                return copy(self.index.settings, to, executor, options, choices)
            finally:
                executor.close()

    def plan(self, at, do, **more):
        self.server.plan.next_call(at=at, do=do, **more)

    @property
    def imports(self):
        return self.server.indexes["docs"].imports if "docs" in self.server.indexes else []

    def check(self, *, upserts=0):
        """Pinecone has the records of the index, brought by one import that ended well."""
        name = self.index.version.collection
        expected = {str(one) for one in self.index.expected_ids()}
        assert self.server.written("docs", name) == expected
        assert [job.status for job in self.imports].count("Completed") == 1
        # The registry's own record is one.
        assert self.server.plan.calls["vectors.upsert"] <= 2 + upserts
        assert self.server.indexes["docs"].aliases == {"small": name}
        assert not list(self.bucket.list(""))


@pytest.fixture(scope="module")
def two_syncs():
    """What two syncs leave, once they were made."""
    return []


@pytest.fixture
def copied(small_index, many_parts, plain_http, monkeypatch, two_syncs):
    monkeypatch.setenv("FAKE_PINECONE_KEY", "any")
    made = BulkCopied(small_index())
    changed = {**TEXTS, "d1": "shorter", "new": "seven eight nine ten eleven"}
    del changed["d2"]
    if not two_syncs:
        made.index.ingest(TEXTS)
        made.index.ingest(changed)
        two_syncs.append(made.index.save())
    made.index.restore(two_syncs[0])
    made.index.write(changed)
    with made.server:
        yield made


def test_a_large_copy_is_one_import_of_what_the_index_holds_now(copied):
    report = copied.copy()
    copied.check()
    assert report.status == "succeeded"
    assert report.records.upserted >= report.live_records == report.stored_records > 12
    assert copied.imports[0].mode == "abort"


def test_a_later_copy_writes_what_has_changed_since_and_imports_nothing(copied):
    copied.copy()
    copied.index.ingest({**TEXTS, "d3": "changed now"})
    report = copied.copy()
    assert report.records.upserted < 8
    copied.check(upserts=8)
    assert len(copied.imports) == 1


def test_a_small_copy_is_written_as_usual(copied):
    copied.copy(from_records=1000)
    assert copied.imports == []
    assert copied.server.plan.calls["vectors.upsert"] > 2


def test_a_copy_that_was_begun_as_usual_goes_on_so(copied):
    copied.copy(from_records=1000)
    copied.index.ingest({**TEXTS, "d3": "changed now"})
    copied.copy()
    assert copied.imports == []


# Before a file, the plan, the note of a copy, the intent, the id, the outcome, the first, a later
# and the last applied segment, the end, the report.
WRITES = [2, 3, 5, 6, 7, 8, 9, 10, 13, 18, 19, 20]


@pytest.mark.parametrize("number", WRITES)
def test_killed_before_any_write_it_is_imported_once(copied, number, monkeypatch):
    writes = itertools.count()

    def create(workspace, path, data):
        if next(writes) == number:
            raise Died
        create_of(workspace, path, data)

    create_of = MemoryWorkspace.create
    monkeypatch.setattr(MemoryWorkspace, "create", create)
    try:
        copied.copy()
    except Died:
        pass
    else:
        pytest.fail("fewer effects than expected")
    monkeypatch.setattr(MemoryWorkspace, "create", create_of)
    copied.copy()
    copied.check()
    assert len(copied.imports) == 1


FAULTS = {
    "imports.start": "drop drop-reply html-502 cut-reply error html-200",
    "imports.get": "drop error html-200",
    "imports.list": "drop error",
}


@pytest.mark.parametrize(
    ("at", "do"), [(at, do) for at, deeds in FAULTS.items() for do in deeds.split()]
)
def test_whatever_becomes_of_a_request_there_is_one_import(copied, at, do):
    copied.plan(at, do)
    copied.plan("imports.start", "list-lag", count=2)
    if at == "imports.list":
        # Else nobody would ask for it.
        copied.plan("imports.start", "drop-reply")
    for _ in range(3):
        try:
            copied.copy()
        except EmbedmillError:
            continue
        break
    copied.check()
    assert len(copied.imports) == 1


def test_a_service_that_is_busy_is_asked_again(copied):
    copied.plan("imports.start", "rate-limit", times=3)
    copied.copy()
    copied.check()
    assert copied.server.plan.calls["imports.start"] == 4


def test_a_failed_import_stops_with_its_words_and_the_next_one_begins_afresh(copied):
    copied.plan("imports.start", "fail", value="Access to the bucket was denied")
    with pytest.raises(StopRunError, match="Access to the bucket was denied") as failed:
        copied.copy()
    assert "another import" in failed.value.hint
    # Half of it is there, and is deleted before the next.
    assert copied.server.written("docs", copied.index.version.collection)
    copied.copy()
    copied.check()
    assert [job.status for job in copied.imports] == ["Failed", "Completed"]


def test_an_import_that_somebody_cancels_is_not_taken_for_done(copied):
    copied.plan("imports.start", "cancel")
    with pytest.raises(StopRunError, match="cancelled"):
        copied.copy()
    copied.copy()
    copied.check()


def test_an_import_that_lost_a_record_and_does_not_say_so_is_seen_by_the_count(copied):
    copied.plan("imports.start", "lose")
    for _ in range(2):
        with pytest.raises(CountsMismatchError, match="22 of 23") as failed:
            copied.copy()
        assert "--overwrite" in failed.value.hint
    # Put right record by record, by the comparison at the end.
    copied.copy(overwrite=True)
    copied.check(upserts=1)


def test_an_import_that_is_not_allowed_costs_no_search_for_it_later(copied):
    copied.plan("imports.start", "quota")
    with pytest.raises(StopRunError):
        copied.copy()
    listed = copied.server.plan.calls["imports.list"]
    copied.copy()
    copied.check()
    assert copied.server.plan.calls["imports.list"] == listed


def test_what_pinecone_cannot_hold_is_left_out_and_said(copied, monkeypatch):
    sizes = sorted(len(orjson.dumps(metadata_of(payload))) for payload in copied.index.payloads())
    large = sizes.count(sizes[-1])
    limit = sizes[-1] - 1
    monkeypatch.setattr("embedmill.vector_stores.pinecone_imports.METADATA_BYTES", limit)
    report = copied.copy()
    assert (report.status, report.records.rejected) == ("partial", large)
    assert report.live_records == report.stored_records == len(sizes) - large
    assert len(copied.imports) == 1


def test_a_collection_that_is_there_already_is_not_written_over(copied):
    store = PineconeStore(copied.settings())
    name = copied.index.version.collection
    spec = CollectionSpec(8, "cosine", normalised=True)
    store.create_collection(name, spec)
    store.upsert(name, VectorBatch(record_ids(3), unit_vectors(3, dimension=8), [{}] * 3))
    with pytest.raises(RefusedError):
        copied.copy()
    assert copied.imports == []
    copied.copy(overwrite=True)
    copied.check(upserts=1)
    store.close()


def test_the_counts_are_compared_before_anything_counts_as_applied(copied, monkeypatch):
    monkeypatch.setattr(PineconeStore, "count", lambda *_: 3)
    with pytest.raises(CountsMismatchError, match="3 of"):
        copied.copy()
    monkeypatch.undo()
    monkeypatch.setenv("FAKE_PINECONE_KEY", "any")
    copied.copy()
    copied.check()


def test_the_files_travel_through_s3(copied):
    with s3_server() as server:
        request = urllib.request.Request(f"{server.url}/acme", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()
        copied.place = {"url": "s3://acme/exports", **server.access}
        del copied.index.wrappers["bucket"]
        copied.bucket = open_workspace(copied.settings().bulk_import.bucket)
        copied.copy()
        copied.check()
