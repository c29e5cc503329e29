"""The tables of docs/vector-stores.md say what the stores do."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("qdrant_client")
pytest.importorskip("pinecone")
pytest.importorskip("weaviate")

from weaviate_rig import quick_clients

from embedmill.pinecone_settings import PineconeSettings
from embedmill.qdrant_settings import QdrantServerSettings
from embedmill.settings import MemoryStoreSettings, QdrantEmbeddedSettings
from embedmill.testing.counting_store_contract import UNIT, a_batch
from embedmill.testing.pinecone_server import PineconeServer
from embedmill.testing.qdrant_server import QdrantServer
from embedmill.testing.weaviate_server import WeaviateServer
from embedmill.vector_stores.build import open_store, store_limits
from embedmill.vector_stores.pinecone_metadata import metadata_of
from embedmill.vector_stores.weaviate_records import properties_of
from embedmill.vector_stores.weaviate_schema import Collection
from embedmill.weaviate_settings import WeaviateSettings

PAGE = (Path(__file__).parents[2] / "docs/vector-stores.md").read_text()
NAMES = {"date": date, "Decimal": Decimal, "float": float}


def table(heading):
    """Rows of the first table under a heading, by their first cell; a row is cells by column."""
    lines = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [line[1:-1].split("|") for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    head = [cell.strip("`") for cell in cells[0]]
    return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in cells[2:]}


STORES = ["memory", "qdrant_embedded", "qdrant", "pinecone", "weaviate"]
VALUES = table("What becomes of a payload")


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores")
    with (
        pytest.MonkeyPatch.context() as patch,
        QdrantServer() as qdrant,
        PineconeServer() as pine,
        WeaviateServer() as weaviate,
    ):
        quick_clients(patch)
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setenv("FAKE_PINECONE_KEY", "any")
        yield {
            "memory": MemoryStoreSettings(kind="memory", name="tables"),
            "qdrant_embedded": QdrantEmbeddedSettings(
                kind="qdrant_embedded", path=str(folder / "embedded")
            ),
            "qdrant": QdrantServerSettings(kind="qdrant", url=qdrant.url),
            "pinecone": PineconeSettings(
                kind="pinecone",
                index="tables",
                api_key="${FAKE_PINECONE_KEY}",
                control_url=pine.url,
                count_settles_s=0.0,
            ),
            "weaviate": WeaviateSettings(
                kind="weaviate", url=weaviate.url, grpc_url=weaviate.grpc_url
            ),
        }


@pytest.fixture(scope="module")
def stores(settings):
    opened = {kind: open_store(one) for kind, one in settings.items()}
    for store in opened.values():
        store.create_collection("notes", UNIT)
    yield opened
    for store in opened.values():
        store.close()


def test_every_store_has_a_column_in_every_table():
    for heading in ("How each one does it", "What they take", "What becomes of a payload"):
        for row in table(heading).values():
            assert list(row) == STORES


@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("said", VALUES)
def test_a_value_becomes_what_the_page_says(stores, kind, said):
    value = eval(said.strip("`"), {"__builtins__": {}}, NAMES)
    batch = a_batch(2, payloads=[{"value": value, "metadata": {"value": value}}, {"n": 1}])
    rejected = stores[kind].upsert("notes", batch)
    becomes = VALUES[said][kind]
    if becomes == "refused":
        assert [(one.row, one.code) for one in rejected] == [(0, "payload-type")]
        return
    assert list(rejected) == []
    back = list(value) if becomes == "a list" else value
    found = stores[kind].fetch("notes", batch.ids).payloads
    assert found == [{"value": back, "metadata": {"value": back}}, {"n": 1}]
    # 3 and 3.0 are equal, and not the same.
    assert type(found[0]["value"]) is type(back)


@pytest.mark.parametrize("kind", STORES)
def test_the_limits_are_those_of_the_stores(settings, kind):
    limits = store_limits(settings[kind])
    assert {name: row[kind] for name, row in table("What they take").items()} == {
        "records in one request": f"{limits.records:,}",
        "bytes in one request": f"{limits.request_bytes:,}",
        "bytes of one payload": f"{limits.payload_bytes:,}",
        "writers at a time": str(limits.writers),
    }


# A value for each row of the table, by what the row says first.
PLACED = {
    "`doc_id`": ({"doc_id": "d"}, "doc_id"),
    "`chunk_index`": ({"chunk_index": 3}, "chunk_index"),
    "`text`": ({"text": "words"}, "text"),
    "`start`, `end`, `uri`": ({"start": 1, "end": 2, "uri": "a.md"}, "start"),
    "`headings`": ({"headings": ["One"]}, "headings"),
    "`metadata`: text": ({"metadata": {"lang": "en", "n": 1, "on": True}}, "metadata.lang"),
    "`metadata`: an object": ({"metadata": {"deep": {"leaf": "x"}}}, "metadata.deep.leaf"),
    "null": ({"metadata": {"a": None, "b": 3.0, "c": 2**53 + 1, "d": [], "e": "\0"}}, ""),
    "a key that is empty": ({"metadata": {"": 1, "a.b": 2, "$x": 3}, "_y": 4}, ""),
}


@pytest.mark.parametrize(
    "row", [row for row in table("Where a payload is kept") if "filter" not in row]
)
def test_a_payload_is_kept_where_the_page_says(row):
    payload, key = next(placed for said, placed in PLACED.items() if row.startswith(said))
    metadata = metadata_of(payload)
    assert ("embedmill_rest" in metadata) == (key == "")
    assert key == "" or key in metadata
    facts = Collection("notes", UNIT, columns={"lang": ("metadata_lang", "keyword")})
    properties = properties_of(payload, facts)
    own = key in {"doc_id", "chunk_index", "text"}
    assert (key in properties) == own
    assert ("embedmill_rest" in properties) != own
    assert ("metadata_lang" in properties) == (key == "metadata.lang")
