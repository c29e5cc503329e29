"""What an index keeps below its own source is no part of it."""

import pytest

from embedmill.assembly import build_source
from embedmill.errors import RefusedError
from embedmill.own_folders import require_not_read
from embedmill.settings import Settings
from embedmill.sources.listing import relative_part


def settings_of(source, workspace, store):
    return Settings.model_validate(
        {
            "index": "docs",
            "workspace": str(workspace),
            "source": source,
            "chunker": {"kind": "text"},
            "embedder": {"kind": "hashing"},
            "store": {"kind": "qdrant_embedded", "path": str(store)},
        }
    )


def listed(source, workspace, store):
    """What the source of an index finds, by the path below its folder."""
    settings = settings_of(source, workspace, store)
    return [
        relative_part(path) for split in build_source(settings).splits() for path in split.paths
    ]


@pytest.fixture
def folder(tmp_path):
    """Documents, and beside them the files of an index."""
    names = "a.jsonl", "ws/b.jsonl", "ws/indexes/c.jsonl", "ws/store/d.jsonl", "indexes/e.jsonl"
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"id": "1", "text": "x"}\n')
    return tmp_path


@pytest.mark.parametrize("kind", ["table", "files"])
def test_workspace_and_store_below_the_source_hold_no_documents(folder, kind):
    source = {"kind": kind, "path": str(folder)}
    if kind == "files":
        source["include"] = ("**/*",)
    found = listed(source, folder / "ws", folder / "ws" / "store")
    assert found == ["a.jsonl", "indexes/e.jsonl", "ws/b.jsonl"]
    assert listed(source, folder, folder / "ws") == ["a.jsonl"]


def test_documents_within_a_workspace_are_found(folder):
    source = {"kind": "table", "path": str(folder / "ws")}
    assert listed(source, folder, folder / "store") == [
        "b.jsonl",
        "indexes/c.jsonl",
        "store/d.jsonl",
    ]


def test_an_address_and_a_bucket_are_workspaces_too(folder):
    source = {"kind": "table", "path": str(folder)}
    found = listed(source, f"file://{folder}/ws", folder / "ws" / "store")
    assert found == ["a.jsonl", "indexes/e.jsonl", "ws/b.jsonl"]
    assert "ws/indexes/c.jsonl" in listed(source, "s3://bucket/ws", folder / "ws" / "store")


TABLE, FILES = {"kind": "table"}, {"kind": "files"}
ALL = {**FILES, "include": ("**/*",), "exclude": ("out/**",)}
READ = [
    (TABLE, "", "more/x.parquet", True),
    (TABLE, "", "x.svg", False),
    (TABLE, "", ".out/x.parquet", False),
    (TABLE, "*.parquet", "x.parquet", True),
    (TABLE, "*.parquet", "more/x.parquet", False),
    (TABLE, "a.jsonl", "a.jsonl", True),
    (TABLE, "a.jsonl", "x.parquet", False),
    (TABLE, "ws", "x.parquet", False),
    (TABLE, "", "ws/store/x.parquet", False),
    (FILES, "", "x.parquet", False),
    (FILES, "", "x.html", True),
    (ALL, "", "x.parquet", True),
    (ALL, "", "out/x.parquet", False),
]


@pytest.mark.parametrize(("source", "path", "target", "read"), READ)
@pytest.mark.parametrize("bucket", [False, True])
def test_what_the_source_would_read_is_not_written_by_us(
    folder, source, path, target, read, bucket
):
    root = "s3://documents/t" if bucket else str(folder)
    settings = settings_of({**source, "path": f"{root}/{path}"}, folder / "ws", folder / "ws/store")
    if bucket and "store" in target:
        # The store of an index is in no bucket.
        read = True
    # Of a source that is on a disk a bucket is no part, and the other way round.
    require_not_read(settings, str(folder / target) if bucket else f"s3://documents/t/{target}")
    targets = [f"{root}/{target}"] if bucket else [f"{root}/{target}", f"file://{root}/{target}"]
    for one in targets:
        if not read:
            require_not_read(settings, one)
            continue
        with pytest.raises(RefusedError, match="read as a document of index 'docs'") as caught:
            require_not_read(settings, one)
        assert ("source.exclude" in caught.value.hint) == (source["kind"] == "files")


def test_links_lead_to_the_same_place(folder, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(folder / "ws")
    settings = settings_of({**TABLE, "path": str(link)}, tmp_path / "ws2", tmp_path / "store")
    with pytest.raises(RefusedError):
        require_not_read(settings, str(folder / "ws" / "x.parquet"))


@pytest.mark.parametrize("path", ["/", "/*.parquet"])
def test_a_source_may_be_the_root_of_all_folders(folder, path):
    settings = settings_of({**TABLE, "path": path}, folder / "ws", folder / "ws/store")
    with pytest.raises(RefusedError):
        require_not_read(settings, "/x.parquet")
    require_not_read(settings, "/x.svg")
