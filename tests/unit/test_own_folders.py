"""What an index keeps below its own source is no part of it."""

import pytest

from embedmill.assembly import build_source
from embedmill.settings import Settings
from embedmill.sources.listing import relative_part


def listed(source, workspace, store):
    """What the source of an index finds, by the path below its folder."""
    settings = Settings.model_validate(
        {
            "index": "docs",
            "workspace": str(workspace),
            "source": source,
            "chunker": {"kind": "text"},
            "embedder": {"kind": "hashing"},
            "store": {"kind": "qdrant_embedded", "path": str(store)},
        }
    )
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
