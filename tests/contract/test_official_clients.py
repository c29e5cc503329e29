"""The providers' own clients at the fake servers: what the fakes say is what these understand.

Each part is skipped where its client is not installed. ``cohere`` comes with the development
dependencies; ``voyageai`` brings too much with it, and is checked by hand: ``pip install voyageai``
in an environment of its own, then this file.
"""

import gc
import io
import json

import numpy as np
import pytest

from embedmill.testing import cohere_server, voyage_server
from embedmill.testing.fake_vectors import vectors_for

# The clients leave connections open behind them, Cohere's those to signed addresses too.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TEXTS = [f"text number {number}" for number in range(5)]
V3, V4 = "embed-english-light-v3.0", "embed-v4.0"
FIRST = {"max_retries": 0}


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    served = []

    def start(module, kind, *faults, **options):
        faults = [module.Fault(at=at, do=do, **more) for at, do, more in faults]
        served.append(kind(faults, options=module.ServerOptions(**options)))
        return served[-1].__enter__()

    yield start
    for server in served:
        server.__exit__(None, None, None)


@pytest.fixture
def cohere_at(serve):
    """Makes a client and its server."""
    cohere = pytest.importorskip("cohere")
    clients = []

    def make(*faults, **options):
        server = serve(cohere_server, cohere_server.CohereServer, *faults, **options)
        client = cohere.ClientV2(api_key="any", base_url=server.base_url, timeout=20)
        clients.append(client)
        return client, server

    yield make
    for client in clients:
        client.__exit__(None, None, None)


def uploaded(client, rows, kind, **more):
    """Id of a dataset that was validated."""
    data = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    data.name = "rows.jsonl"
    made = client.datasets.create(name="rows", data=data, type=kind, **more)
    return validated(client, made.id).id


def validated(client, dataset_id):
    for _ in range(5):
        dataset = client.datasets.get(dataset_id).dataset
        if dataset.validation_status in {"validated", "skipped"}:
            return dataset
    raise AssertionError(dataset)


def rows_of(client, dataset_id):
    from cohere.utils import dataset_generator

    rows = list(dataset_generator(validated(client, dataset_id)))
    # What it left open is closed while the warning is ignored.
    gc.collect()
    return rows


def test_cohere_embeds(cohere_at):
    client, server = cohere_at()
    kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
    reply = client.embed(
        model=V4,
        texts=TEXTS,
        input_type="search_document",
        output_dimension=256,
        embedding_types=kinds,
    )
    expected = vectors_for(TEXTS, V4, 256, "search_document")
    assert np.allclose(reply.embeddings.float_, expected, atol=1e-6)
    sizes = {"int8": 256, "uint8": 256, "binary": 32, "ubinary": 32}
    assert {kind: len(getattr(reply.embeddings, kind)[0]) for kind in sizes} == sizes
    assert len(reply.embeddings.base64) == len(TEXTS)
    assert reply.texts == TEXTS
    assert reply.meta.billed_units.input_tokens == server.bill.tokens


def test_cohere_is_refused_as_its_client_knows_it(cohere_at):
    import cohere

    client, _ = cohere_at(
        ("embed", "rate-limit", {"call": 3}),
        ("embed", "bad-key", {"call": 4, "value": "498"}),
        ("embed", "error", {"call": 5}),
    )

    def embed(texts, **more):
        return client.embed(
            texts=texts,
            input_type="search_query",
            embedding_types=["float"],
            request_options=FIRST,
            **{"model": V4, **more},
        )

    with pytest.raises(cohere.BadRequestError, match="96"):
        embed(["a"] * 97)
    with pytest.raises(cohere.NotFoundError):
        embed(["a"], model="embed-v0")
    with pytest.raises(cohere.TooManyRequestsError):
        embed(["a"])
    with pytest.raises(cohere.core.ApiError, match="498"):
        embed(["a"])
    with pytest.raises(cohere.InternalServerError):
        embed(["a"])


def test_cohere_runs_an_embed_job(cohere_at):
    client, server = cohere_at()
    rows = [{"chunk_id": f"c{at}", "text": text} for at, text in enumerate(TEXTS)]
    dataset = uploaded(client, rows, "embed-input", keep_fields=["chunk_id"])
    created = client.embed_jobs.create(
        model=V3,
        dataset_id=dataset,
        input_type="search_document",
        name="a job",
        embedding_types=["float"],
        truncate="END",
    )
    job = client.embed_jobs.get(created.job_id)
    assert (job.status, job.name, job.input_dataset_id) == ("complete", "a job", dataset)
    assert [one.job_id for one in client.embed_jobs.list().embed_jobs] == [created.job_id]
    found = rows_of(client, job.output_dataset_id)
    assert [row["chunk_id"] for row in found] == [row["chunk_id"] for row in rows]
    assert len(found[0]["embeddings"]["float"]) == 384
    assert job.meta.billed_units.input_tokens == server.bill.tokens


def test_cohere_cancels_an_embed_job_and_is_refused_a_newer_model(cohere_at):
    import cohere

    client, _ = cohere_at(("job", "stay", {"count": 0}))
    dataset = uploaded(client, [{"text": "a"}], "embed-input")
    ask = {"dataset_id": dataset, "input_type": "search_document"}
    created = client.embed_jobs.create(model=V3, **ask)
    client.embed_jobs.cancel(created.job_id)
    assert client.embed_jobs.get(created.job_id).status == "cancelled"
    with pytest.raises(cohere.BadRequestError):
        client.embed_jobs.create(model=V4, **ask, request_options=FIRST)


def test_cohere_runs_a_batch(cohere_at):
    from cohere.batches import Batch

    client, server = cohere_at()
    body = {"input_type": "search_document", "embedding_types": ["float"]}
    rows = [{"custom_id": "a", "body": {**body, "texts": TEXTS[:2]}}]
    rows += [{"custom_id": "b", "body": {**body, "texts": TEXTS[2:]}}]
    dataset = uploaded(client, rows, "batch-embed-v2-input")
    made = client.batches.create(request=Batch(name="a batch", input_dataset_id=dataset, model=V4))
    assert client.batches.retrieve(made.batch.id).batch.status == "BATCH_STATUS_IN_PROGRESS"
    batch = client.batches.retrieve(made.batch.id).batch
    assert (batch.status, batch.num_successful_records) == ("BATCH_STATUS_COMPLETED", 2)
    assert batch.input_tokens == str(server.bill.tokens)
    assert [one.id for one in client.batches.list(page_size=1).batches] == [batch.id]
    found = {row["custom_id"]: row for row in rows_of(client, batch.output_dataset_id)}
    assert np.allclose(
        found["b"]["body"]["embeddings"]["float"],
        vectors_for(TEXTS[2:], V4, 1536, "search_document"),
        atol=1e-6,
    )


def test_cohere_cancels_a_batch(cohere_at):
    from cohere.batches import Batch

    client, _ = cohere_at()
    row = {"custom_id": "a", "body": {"texts": ["a"], "input_type": "clustering"}}
    dataset = uploaded(client, [row], "batch-embed-v2-input")
    made = client.batches.create(request=Batch(name="b", input_dataset_id=dataset, model=V4))
    client.batches.cancel(made.batch.id)
    assert client.batches.retrieve(made.batch.id).batch.status == "BATCH_STATUS_CANCELED"


@pytest.fixture
def voyage_at(serve):
    """Makes a client and its server."""
    voyageai = pytest.importorskip("voyageai")

    def make(*faults, **options):
        server = serve(voyage_server, voyage_server.VoyageServer, *faults, **options)
        return voyageai.Client(api_key="any", base_url=server.base_url, timeout=20), server

    yield make
    gc.collect()


def test_voyage_embeds(voyage_at):
    client, server = voyage_at()
    ask = {"model": "voyage-4", "input_type": "document", "output_dimension": 256}
    reply = client.embed(TEXTS, **ask)
    assert reply.total_tokens == server.bill.tokens
    expected = vectors_for(TEXTS, "voyage-4", 256, "document")
    assert np.allclose(reply.embeddings, expected, atol=1e-6)
    for kind, size in (("int8", 256), ("uint8", 256), ("binary", 32), ("ubinary", 32)):
        vectors = client.embed(TEXTS, output_dtype=kind, **ask).embeddings
        assert [len(vector) for vector in vectors] == [size] * len(TEXTS), kind


def test_voyage_is_refused_as_its_client_knows_it(voyage_at):
    from voyageai import error

    client, _ = voyage_at(
        ("embeddings", "rate-limit", {"call": 3}),
        ("embeddings", "bad-key", {"call": 4}),
        ("embeddings", "error", {"call": 5, "value": "503"}),
    )
    with pytest.raises(error.InvalidRequestError, match="batch size"):
        client.embed(["a"] * 1001, model="voyage-4")
    with pytest.raises(error.InvalidRequestError, match="not supported"):
        client.embed(["a"], model="voyage-0")
    for kind in (error.RateLimitError, error.AuthenticationError, error.ServiceUnavailableError):
        with pytest.raises(kind):
            client.embed(["a"], model="voyage-4")
