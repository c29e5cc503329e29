"""The query contract: what is said of a search service that embeds queries in another way."""

import json
import sys
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from embedmill.canary import CANARY_TEXTS, embedded_canary
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.errors import RefusedError, SettingsError, TransientError
from embedmill.query_contract import QueryContract, held_against
from embedmill.query_services import query_service
from embedmill.settings import HashingEmbedderSettings
from pipelines.cli import app

NAMES = list(CANARY_TEXTS)


def an_embedder(metric="cosine", **more):
    settings = HashingEmbedderSettings(kind="hashing", **{"dimension": 64, **more})
    return HashingEmbedder(settings, hashing_recipe(settings, metric))


def a_contract(metric="cosine", **more):
    embedder = an_embedder(metric, **more)
    return QueryContract("books", "v3", "books--v3", embedded_canary(embedder, {}, "now"))


def held(contract, vectors):
    return held_against(contract, dict(zip(NAMES, vectors, strict=True)), least=0.999)


def queries(change=lambda text: text, **more):
    texts = [change(text) for text in CANARY_TEXTS.values()]
    return an_embedder(**more).embed(texts, "query").vectors


def only(parity):
    [difference] = parity.differences
    return difference


def test_the_same_model_passes():
    parity = held(a_contract(), queries())
    assert not parity.differences
    assert not parity.notes
    assert set(parity.cosines) == set(NAMES)


def test_a_missing_prompt_is_named():
    contract = a_contract(query_prompt="query: ", document_prompt="passage: ")
    as_documents = an_embedder(document_prompt="passage: ").embed(
        list(CANARY_TEXTS.values()), "document"
    )
    difference = only(held(contract, as_documents.vectors))
    assert difference.field == "query_prompt"
    assert "'query: '" in difference.detail
    assert "'passage: '" in difference.detail
    difference = only(held(contract, queries()))
    assert difference.field == "model"
    assert "the prompt 'query: '" in difference.detail


def test_a_missing_input_type_is_named():
    """A provider that puts a prompt of its own before what it is told is a query."""

    class Told:
        recipe = replace(
            an_embedder().recipe, document_input_type="document", query_input_type="query"
        )

        def embed(self, texts, role):
            told = self.recipe.input_type(role)
            return an_embedder().embed([f"{told} {text}" for text in texts], "query")

    contract = QueryContract("books", "v3", "books--v3", embedded_canary(Told(), {}, "now"))
    texts = list(CANARY_TEXTS.values())
    assert not held(contract, Told().embed(texts, "query").vectors).differences
    difference = only(held(contract, Told().embed(texts, "document").vectors))
    assert difference.field == "query_input_type"
    assert "ask with input_type 'query', not 'document'" in difference.detail


def test_another_model_of_the_same_dimension_is_named():
    difference = only(held(a_contract(), np.roll(queries(), 1, axis=1)))
    assert difference.field == "model"
    assert "6 of 6 texts differ" in difference.detail


def test_another_dimension_is_named_and_a_longer_vector_may_be_cut():
    difference = only(held(a_contract(), queries(dimension=32)))
    assert (difference.field, "dimension 32; the index has 64" in difference.detail) == (
        "dimension",
        True,
    )
    assert "cut them" in only(held(a_contract(), np.tile(queries(), 2))).detail


def test_another_order_is_named():
    assert only(held(a_contract(), queries()[::-1])).field == "order"


@pytest.mark.parametrize(
    ("name", "change", "field"),
    [
        ("accents", lambda text: text.encode("ascii", "replace").decode(), "text"),
        ("long", lambda text: " ".join(text.split()[:100]), "max_tokens"),
    ],
)
def test_a_habit_with_texts_is_named_by_the_text_that_shows_it(name, change, field):
    difference = only(held(a_contract(), queries(change)))
    assert (difference.field, difference.text) == (field, name)


def test_a_length_matters_where_the_metric_says_so():
    parity = held(a_contract(), queries() * 3)
    assert not parity.differences
    assert "norm 3.000" in parity.notes[0]
    difference = only(held(a_contract("dot"), queries() * 3))
    assert difference.field == "normalise"


def test_vectors_that_are_not_finite_are_named():
    vectors = queries()
    vectors[2, 0] = np.nan
    assert only(held(a_contract(), vectors)).text == NAMES[2]


def test_services_read_the_contract_as_plain_json():
    record = json.loads(json.dumps(a_contract(query_prompt="q: ").to_json()))
    assert record["alias"] == "books"
    assert (record["model"], record["dimension"], record["metric"]) == ("hashing", 64, "cosine")
    assert record["query_prompt"] == "q: "
    assert [each["text"] for each in record["parity"]] == list(CANARY_TEXTS.values())
    assert len(record["parity"][0]["query_vector"]) == 64


@contextmanager
def serving(answer):
    """A server that answers requests through a function of path, headers and body."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, reply = answer(self.path, headers, body)
            data = reply if isinstance(reply, bytes) else json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def embeddings(path, headers, body):
    vectors = an_embedder().embed(body.get("input", body.get("inputs")), "query").vectors.tolist()
    if path == "/embed":
        return 200, vectors
    if path != "/v1/embeddings" or headers.get("authorization", "Bearer k") != "Bearer k":
        return 401, {"error": "who are you"}
    items = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
    return 200, {"data": items[::-1], "model": body["model"]}


@pytest.mark.parametrize("path", ["/v1", "/v1/embeddings", "/embed"])
@pytest.mark.parametrize("one_by_one", [False, True])
def test_servers_of_both_languages_are_asked(path, one_by_one):
    with serving(embeddings) as url:
        service = query_service(url + path, model="hashing", one_by_one=one_by_one)
        np.testing.assert_allclose(service(list(CANARY_TEXTS.values())), queries(), atol=1e-6)


def test_a_key_is_taken_from_the_environment(monkeypatch):
    monkeypatch.setenv("SEARCH_KEY", "k")
    with serving(embeddings) as url:
        query_service(f"{url}/v1", model="m", key_variable="SEARCH_KEY")(["a"])
        monkeypatch.setenv("SEARCH_KEY", "other")
        with pytest.raises(RefusedError, match="status 401"):
            query_service(f"{url}/v1", model="m", key_variable="SEARCH_KEY")(["a"])
    with pytest.raises(SettingsError, match="NO_SUCH_KEY is not set"):
        query_service("http://localhost/v1", model="m", key_variable="NO_SUCH_KEY")


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (b"<html>", "does not answer with JSON"),
        ({"vectors": []}, "OpenAI's form"),
        ({"data": [{"index": 0, "embedding": "AAAA"}]}, "no vector"),
        ({"data": []}, "0 vectors for 1 text"),
        ({"data": [{"index": 0, "embedding": [[1.0]]}]}, "shape"),
    ],
)
def test_what_is_no_answer_is_said(reply, said):
    with serving(lambda *_: (200, reply)) as url, pytest.raises(RefusedError, match=said):
        query_service(f"{url}/v1", model="m")(["a"])


def test_a_server_that_is_not_there_is_said():
    with serving(embeddings) as url:
        pass
    with pytest.raises(TransientError, match="cannot be reached"):
        query_service(f"{url}/v1", model="m")(["a"])


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """A folder with an index, and a module of a search service."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    monkeypatch.delitem(sys.modules, "my_search", raising=False)
    settings = {
        "index": "books",
        "workspace": "ws",
        "source": {"kind": "table", "path": "rows.jsonl"},
        "chunker": {"kind": "text", "max_tokens": 20},
        "embedder": {"kind": "hashing", "dimension": 64},
        "store": {"kind": "qdrant_embedded", "path": "store"},
        "shard_count": 2,
    }
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "rows.jsonl").write_text('{"id": "a", "text": "one two three"}\n')
    (tmp_path / "my_search.py").write_text(
        "from test_query_contract import an_embedder\n"
        "def embed(texts): return an_embedder().embed(texts, 'query').vectors\n"
        "def one(text): return list(embed([text])[0])\n"
        "def other(texts): return embed(['x ' + t for t in texts])\n"
        "def wrong(texts): return 7\n"
    )
    monkeypatch.setitem(sys.modules, "test_query_contract", sys.modules[__name__])

    def run(*words):
        return CliRunner().invoke(app, list(words), catch_exceptions=False)

    assert run("ingest", "s.yaml", "--local").exit_code == 0
    return run


def test_a_service_is_checked_from_the_command_line(shell):
    good = shell("check-query", "s.yaml", "--embedder", "python:my_search:embed")
    assert (good.exit_code, "cosine at least 1.000000" in good.output) == (0, True)
    assert shell("check-query", "s.yaml", "--embedder", "python:my_search:one").exit_code != 0
    one = ("check-query", "s.yaml", "--embedder", "python:my_search:one", "--one-by-one")
    assert shell(*one).exit_code == 0
    bad = shell("check-query", "s.yaml", "--embedder", "python:my_search:other", "--json")
    assert bad.exit_code == 7
    found = json.loads(bad.output)
    assert (found["same"], found["differences"][0]["field"]) == (False, "model")


@pytest.mark.parametrize(
    ("embedder", "said"),
    [
        ("python:my_search:wrong", "not a list of vectors"),
        ("python:my_search:nothing", "no attribute 'nothing'"),
        ("python:no_such_module:embed", "no module 'no_such_module'"),
        ("python:my_search", "python:MODULE:FUNCTION"),
        ("my_search", "python:MODULE:FUNCTION"),
    ],
)
def test_what_cannot_be_asked_is_said(shell, embedder, said):
    refused = shell("check-query", "s.yaml", "--embedder", embedder)
    assert refused.exit_code in {2, 4}
    assert said in " ".join(refused.stderr.split())


def test_the_contract_is_printed_and_kept_for_services(shell, tmp_path):
    printed = json.loads(shell("contract", "s.yaml").output)
    kept = tmp_path / "ws/indexes/books/versions/v1/contract.json"
    assert json.loads(kept.read_text()) == printed


def test_an_evaluation_prints_a_table_and_keeps_a_plot(shell, tmp_path):
    done = shell("evaluate", "s.yaml", "--plot", "plot.svg", "--json")
    assert done.exit_code == 0
    found = json.loads(done.output)
    assert (found["version"], found["against"], found["passed"]) == ("v1", None, True)
    assert {gate["name"] for gate in found["gates"]} >= {"records", "self-retrieval"}
    assert ElementTree.parse(tmp_path / "plot.svg").getroot().tag.endswith("svg")
    assert len(list((tmp_path / "ws/indexes/books/evaluations").iterdir())) == 2
    table = shell("evaluate", "s.yaml").output
    assert "v1 passes every gate" in table
    assert "self-retrieval@10" in table


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--version", "9"), "there is no version v9"),
        (("--queries", "q.jsonl"), "--queries and --qrels go together"),
        (("--queries", "q.jsonl", "--qrels", "r.tsv"), "q.jsonl cannot be read"),
        (("--plot", "no/such/folder.svg"), "cannot be written"),
    ],
)
def test_an_evaluation_that_cannot_be_made_is_refused(shell, words, said):
    refused = shell("evaluate", "s.yaml", *words)
    assert refused.exit_code in {2, 4}
    assert said in " ".join(refused.stderr.split())


def test_a_version_that_fails_a_gate_ends_with_status_7(shell, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"_id": "1", "text": "nothing of the kind"}\n')
    (tmp_path / "r.tsv").write_text("1\tb\t1\n")
    labels = ("--queries", "q.jsonl", "--qrels", "r.tsv", "--set", "gates.min_ndcg=0.5")
    failed = shell("evaluate", "s.yaml", *labels, "--plot", "plot.svg")
    assert failed.exit_code == 7
    assert "v1 is not fit to be published: queries" in failed.output
    assert "refused by: queries" in (tmp_path / "plot.svg").read_text()
