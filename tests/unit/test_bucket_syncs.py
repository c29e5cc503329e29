"""Syncs of a bucket: what is listed as it was costs its line in the listing, and nothing else."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from s3_server import s3_server

from embedmill.assembly import build_source, seams
from embedmill.executor import InlineExecutor
from embedmill.sources.listing import relative_part
from embedmill.testing.crash_points import Crash, Process
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

TEXTS = {f"{name}.md": f"{name} of an apple".encode() for name in "abcdef"}


@pytest.fixture(scope="module")
def server():
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(server):
    with server.bucket("documents"):
        yield Bucket(server)


class Bucket:
    """The objects of a source, and what was asked of them."""

    def __init__(self, server):
        self.server = server

    def put(self, objects):
        self.server.put("documents", objects)

    def delete(self, *keys):
        for key in keys:
            self.server.client.delete_object(Bucket="documents", Key=key)

    def put_in_parts(self, key, content):
        """Put an object whose entity tag is not a digest of its content."""
        client, named = self.server.client, {"Bucket": "documents", "Key": key}
        upload = {**named, "UploadId": client.create_multipart_upload(**named)["UploadId"]}
        tag = client.upload_part(**upload, PartNumber=1, Body=content)["ETag"]
        parts = {"Parts": [{"PartNumber": 1, "ETag": tag}]}
        client.complete_multipart_upload(**upload, MultipartUpload=parts)

    def read_since(self, start):
        """Keys of the objects that were read since so many requests."""
        got = [r for r in self.server.requests[start:] if r.startswith("GET /documents/")]
        return sorted(r.removeprefix("GET /documents/") for r in got if "?" not in r)


@pytest.fixture
def index(small_index, bucket):
    """An index over the bucket, with a sync that also says which objects were read."""
    source = {"kind": "files", "path": "s3://documents", "bucket": bucket.server.access}
    made = small_index(source=source)

    def sync(**options):
        start = len(bucket.server.requests)
        return made.ingest(**options), bucket.read_since(start)

    made.sync = sync
    return made


def counts(report):
    d = report.documents
    return {
        name: getattr(d, name)
        for name in ("added", "changed", "unchanged", "removed", "dead", "recognised")
        if getattr(d, name)
    }


def test_a_sync_in_which_nothing_has_changed_is_one_listing(index, bucket):
    bucket.put(TEXTS)
    report, read = index.sync()
    assert (counts(report), read) == ({"added": 6}, sorted(TEXTS))
    assert report.read_bytes > 0
    start = len(bucket.server.requests)

    report, read = index.sync()

    assert (counts(report), read) == ({"unchanged": 6, "recognised": 6}, [])
    assert (report.documents.read, report.read_bytes, report.problems()) == (6, 0, [])
    assert [r for r in bucket.server.requests[start:] if r.startswith("GET")] == [
        "GET /documents?list-type=2"
    ]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_workspace_below_the_source_holds_no_documents(small_index, bucket, elsewhere):
    bucket.put({**TEXTS, "ws/notes/g.md": b"a note", "ws/indexes/mine.md": b"not ours"})
    access = bucket.server.access
    source = {"kind": "files", "path": "s3://documents", "include": ("**/*",), "bucket": access}
    other = access["endpoint"].replace("127.0.0.1", "localhost") if elsewhere else None
    workspace = {"url": "s3://documents/ws", **access, "endpoint": other or access["endpoint"]}
    made = small_index(source=source, workspace=workspace)
    found = list_of(made)
    assert found == [*TEXTS, *["ws/indexes/mine.md"] * elsewhere, "ws/notes/g.md"]


def list_of(index):
    splits = build_source(index.settings).splits()
    return [relative_part(path) for split in splits for path in split.paths]


def test_what_has_changed_is_read_and_what_is_gone_is_deleted(index, bucket):
    bucket.put(TEXTS)
    index.sync()
    bucket.put({"b.md": b"another apple"})
    bucket.delete("d.md")
    bucket.put({"new.md": b"a pear"})

    report, read = index.sync()

    assert counts(report) == {
        "added": 1,
        "changed": 1,
        "unchanged": 4,
        "removed": 1,
        "recognised": 4,
    }
    assert read == ["b.md", "new.md"]
    assert index.ids() == index.expected_ids()
    assert index.sync()[1] == []


def test_the_same_content_under_another_tag_is_read_once(index, bucket):
    bucket.put(TEXTS)
    index.sync()
    bucket.put_in_parts("c.md", TEXTS["c.md"])

    report, read = index.sync()

    assert (counts(report), read) == ({"unchanged": 6, "recognised": 5}, ["c.md"])
    assert not report.changed_anything
    assert index.count_of(".docs.parquet") == 3
    assert index.sync()[1] == []


def test_what_is_remembered_is_the_tag_of_the_bytes_that_were_read(index, bucket, monkeypatch):
    from embedmill.sources.files import FilesSource

    bucket.put(TEXTS)
    real = FilesSource.read

    def replaced_before(source, split):
        bucket.put({"a.md": b"something else"})
        return real(source, split)

    with monkeypatch.context() as patch:
        patch.setattr(FilesSource, "read", replaced_before)
        index.sync()
    # Within the second, so that it is listed as it was when the first run listed it.
    bucket.put({"a.md": TEXTS["a.md"]})

    report, read = index.sync()

    assert (counts(report), read) == ({"changed": 1, "unchanged": 5, "recognised": 5}, ["a.md"])


@pytest.mark.parametrize("setting", [{"fallback_encoding": "latin-1"}, {"max_document_bytes": 99}])
def test_settings_that_decide_how_objects_are_read_have_all_read_again(index, bucket, setting):
    bucket.put({**TEXTS, "umlaut.md": "\u00e4pfel".encode("latin-1"), "long.md": b"word " * 100})
    index.sync()
    index.swap(source={**index.settings.source.model_dump(mode="json"), **setting})

    report, read = index.sync()

    assert len(read) == 8
    assert report.documents.recognised == 0
    assert index.sync()[1] == [key for key in ("long.md", "umlaut.md") if report.documents.dead]


def test_a_document_that_died_is_read_by_every_run(index, bucket):
    bucket.put({**TEXTS, "bad.md": b"\xff\xfe\xff"})
    assert counts(index.sync()[0]) == {"added": 6, "dead": 1}

    report, read = index.sync()

    assert (counts(report), read) == ({"unchanged": 6, "dead": 1, "recognised": 6}, ["bad.md"])
    start = len(bucket.server.requests)
    index.replay()
    assert bucket.read_since(start) == ["bad.md"]


def test_everything_is_read_where_somebody_wants_it(index, bucket):
    bucket.put(TEXTS)
    index.sync()

    report, read = index.sync(reread=True)

    assert (counts(report), read) == ({"unchanged": 6}, sorted(TEXTS))
    assert index.count_of("/readings/") == 3


@pytest.mark.parametrize("entity", ["none", "weak", "one-for-all"])
def test_a_store_whose_tags_say_nothing_has_all_objects_read(
    index, bucket, monkeypatch, caplog, entity
):
    from embedmill.sources import bucket as module

    def told(meta):
        entities = {"none": None, "weak": f"W/{meta['e_tag']}", "one-for-all": '"1"'}
        return {**meta, "e_tag": entities[entity]}

    real = module.keys_below, module.tag_of

    def keys_below(*args):
        for key in real[0](*args):
            yield key._replace(meta=told(key.meta))

    monkeypatch.setattr(module, "keys_below", keys_below)
    monkeypatch.setattr(module, "tag_of", lambda place, meta: real[1](place, told(meta)))
    bucket.put({**TEXTS, "g.md": b"of another size"})
    index.sync()

    report, read = index.sync()

    assert (counts(report), len(read)) == ({"unchanged": 7}, 7)
    warned = "one entity tag" in caplog.text
    assert warned == (entity == "one-for-all")


def test_what_two_versions_have_read_is_kept_apart_and_goes_with_them(index, bucket):
    bucket.put(TEXTS)
    index.sync()
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    index.reembed()
    index.publish()
    assert index.sync()[1] == []
    one, two = index.manifest.versions
    for version in (one, two):
        assert index.count_of(f"/readings/{version.chunking.id}/") == 3


@pytest.fixture
def many_files(monkeypatch):
    """Readings are put one by one, and files of them are put together early."""
    monkeypatch.setattr("embedmill.readings._FILE_READINGS", 1)
    monkeypatch.setattr("embedmill.readings._MOST_FILES", 3)


def killed(index, crash_at):
    """A run that dies at one of its effects; its process."""
    process = Process(crash_at, "after")
    wraps = process.seams()
    with seams(replace(wraps, workspace=lambda _: wraps.workspace(index.workspace))):
        executor = InlineExecutor()
        try:
            ingest(index.settings, executor, RunOptions(sleep=index.clock.sleep))
        except Crash:
            pass
        finally:
            executor.close()
    return process


@pytest.mark.usefixtures("many_files")
def test_a_run_killed_at_any_effect_costs_another_look_at_most(index, bucket):
    index.swap(shard_count=1)
    bucket.put(TEXTS)
    index.sync()
    texts, number, process = dict(TEXTS), 0, Process(crashed=True)
    while process.crashed:
        number += 2
        fresh = {"a.md": b"changed %d" % number, f"{number}.md": b"new %d" % number}
        bucket.put(fresh)
        bucket.delete(f"{number - 2}.md")
        texts |= fresh
        texts.pop(f"{number - 2}.md", None)
        process = killed(index, number)

        index.sync(take_over=True)

        assert {p["doc_id"]: p["text"].encode() for p in index.payloads()} == texts, number
        assert index.sync()[1] == []
    assert number > 10


changes = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["x", "y", ""]), st.integers(0, 12)),
    max_size=8,
)


@pytest.mark.usefixtures("many_files")
@settings(max_examples=10)
@given(history=changes)
def test_after_any_history_the_index_is_what_the_bucket_is(small_index, server, history):
    source = {"kind": "files", "path": "s3://histories", "bucket": server.access}
    index = small_index(source=source)
    texts = {"always.md": b"there"}
    with server.bucket("histories"):
        server.put("histories", texts)
        for name, content, crash_at in history:
            key = f"{name}.md"
            if content:
                texts[key] = content.encode()
                server.put("histories", {key: texts[key]})
            elif texts.pop(key, None):
                server.client.delete_object(Bucket="histories", Key=key)
            if crash_at:
                killed(index, crash_at)
        index.ingest(take_over=True)
        assert {p["doc_id"]: p["text"].encode() for p in index.payloads()} == texts
        assert index.ingest().documents.recognised == len(texts)


def test_keys_that_cannot_be_asked_for_are_named_and_stop_nobody(index, bucket):
    strange = {
        "slash.md/": "ends with a slash",
        "/lead.md": "begins with a slash",
        "x//y.md": "two slashes in a row",
        "x/../z.md": "a part of its key is '..'",
        "./dot.md": "a part of its key is '.'",
        "tab\t.md": "a control character",
    }
    bucket.put({"end.md//": b"text"})
    bucket.put(dict.fromkeys(strange, b"text") | TEXTS | {"slash.md": b"text"})

    report, _ = index.sync()

    assert counts(report) == {"added": 7, "dead": 7}
    letters = {letter.doc_id: letter for letter in index.letters()}
    assert "ends with a slash" in letters.pop("end.md").message
    assert set(letters) == set(strange)
    for key, why in strange.items():
        assert letters[key].code == "key"
        assert f"{why} ({key!r})" in letters[key].message
    # Of a reply with such a key the tags are lost, as long as it is there.
    assert len(index.sync()[1]) == 8
    bucket.delete("end.md//", *strange)
    assert counts(index.sync()[0]) == {"unchanged": 7, "recognised": 7}


def test_a_slash_at_either_end_of_a_key_is_found_when_it_is_read(index, bucket):
    bucket.put(TEXTS | dict.fromkeys(["slash.md/", "/lead.md", "a.md/"], b"text"))

    report, _ = index.sync()

    assert counts(report) == {"added": 6, "dead": 3}
    letters = {letter.doc_id: letter.message for letter in index.letters()}
    assert letters.keys() == {"slash.md", "lead.md", "a.md/"}
    assert "ends with a slash ('slash.md/')" in letters["slash.md"]
    assert "begins with a slash ('/lead.md')" in letters["lead.md"]
    assert index.sync()[0].documents.recognised == 6


def test_such_a_key_hides_no_others_and_costs_the_tags_of_its_reply_alone(
    index, bucket, monkeypatch
):
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    names = [f"{number}.md" for number in range(8)]
    strange = {"3//y.md": b"text", "z//y.md": b"text"}
    bucket.put(dict.fromkeys([*names, "zz.md", "zzz.md"], b"text") | strange)
    report, _ = index.sync()
    assert counts(report) == {"added": 10, "dead": 2}

    report, read = index.sync()

    # Replies list 0 to 3//y; from there 5 to 7, z//y and zz; and zzz.
    assert counts(report) == {"unchanged": 10, "dead": 2, "recognised": 1}
    assert "zzz.md" not in read
