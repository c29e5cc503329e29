"""An ingest that begins in one process, and goes on with workers when there is more to do."""

from functools import partial

import pytest

import pipelines.ingest
from embedmill.assembly import Seams, seams
from embedmill.errors import SettingsError
from embedmill.executor import InlineExecutor
from embedmill.run_report import read_reports
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from embedmill.workspace import LocalWorkspace
from pipelines.cli_running import running
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions
from pipelines.small_run import SmallRun


class Index(Rehearsal):
    """Runs an ingest with two executors and says which of them ended it."""

    def ingest(self, **run):
        notices = []
        first, larger = InlineExecutor(), InlineExecutor(name="ray")
        options = RunOptions(larger=larger, on_notice=notices.append)
        try:
            report = ingest(self.settings(**run), first, options)
        finally:
            first.close()
            larger.close()
        return report, notices


@pytest.fixture
def index(tmp_path):
    return Index(tmp_path)


def test_what_is_small_stays_in_one_process(index):
    index.write(made_up_texts(8))
    report, notices = index.ingest()
    assert (report.executor, report.documents.added, notices) == ("inline", 8, [])
    again, notices = index.ingest(inline_chunks=0)
    assert (again.executor, again.documents.unchanged, notices) == ("inline", 8, [])


def test_a_run_that_outgrows_one_process_counts_every_document_once(index):
    index.write(made_up_texts(60))
    report, notices = index.ingest(inline_chunks=100)
    assert report.executor == "ray"
    assert report.documents.read == report.documents.added == 60
    assert report.chunks.chunks == report.records.upserted == report.stored_records > 100
    assert notices == ["more than 100 new chunks: starting workers (--local goes on without)"]
    again, _ = index.ingest()
    assert again.documents.unchanged == 60


def index_size(texts, folder):
    """Chunks of an index of these texts."""
    folder.mkdir()
    index = Index(folder)
    index.write(texts)
    return index.ingest()[0].chunks.chunks


@pytest.fixture
def asked():
    """Texts that are embedded, by whichever executor's worker."""
    texts = []

    class Counting:
        def __init__(self, real):
            self.recipe = real.recipe
            self._real = real

        def embed(self, texts_, role):
            texts.extend(texts_ if role == "document" else ())
            return self._real.embed(texts_, role)

    with seams(Seams(embedder=Counting)):
        yield texts


def test_nothing_is_embedded_before_it_is_known_how_much_there_is(index, asked):
    index.write(made_up_texts(60))
    report, _ = index.ingest(inline_chunks=100)
    # Only the larger executor's worker has embedded.
    assert len(asked) == report.chunks.embedded


def test_equal_texts_are_embedded_once_although_the_run_moved_between_them(index, asked):
    texts = made_up_texts(60)
    index.write(texts | {f"copy of {name}": text for name, text in texts.items()})
    report, _ = index.ingest(inline_chunks=200)
    assert report.executor == "ray"
    assert report.chunks.deduplicated == report.chunks.embedded == len(asked)
    assert len(set(asked)) == len(asked)


def test_a_large_source_is_left_to_workers_although_nothing_in_it_is_new(index, monkeypatch):
    index.write(made_up_texts(30))
    index.ingest()
    monkeypatch.setattr(pipelines.ingest, "SmallRun", partial(SmallRun, read_bytes=1000))
    report, notices = index.ingest()
    assert (report.executor, report.documents.unchanged) == ("ray", 30)
    assert notices == ["a source of more than 0 MiB: starting workers (--local goes on without)"]


@pytest.mark.parametrize(("more", "executor"), [(-1, "ray"), (0, "inline")])
def test_chunks_that_an_earlier_run_left_count_as_new_ones(index, more, executor):
    left = index_size(made_up_texts(8), index.folder / "other")
    index.write(made_up_texts(8))

    class Refusing:
        def __init__(self, real):
            self.recipe = real.recipe

        def embed(self, texts, role):
            raise SettingsError("no model today")

    with seams(Seams(embedder=Refusing)), pytest.raises(SettingsError):
        index.ingest()
    report, _ = index.ingest(inline_chunks=left + more)
    assert report.executor == executor
    assert report.documents.unchanged == 8
    assert report.stored_records == report.chunks.chunks > 0


def test_after_a_run_that_was_killed_there_are_workers(index):
    index.write(made_up_texts(8))
    report, _ = index.ingest()
    workspace = LocalWorkspace(index.folder / "workspace")
    workspace.delete([f"indexes/rehearsal/runs/{report.run}/report.json"])
    again, notices = index.ingest()
    assert again.executor == "ray"
    assert "was killed" in notices[0]
    assert next(read_reports(workspace, "rehearsal"))[1] is not None
    assert index.ingest()[0].executor == "inline"


def test_a_store_that_only_counts_is_asked_for_nothing_else(index):
    index.write(made_up_texts(8))
    settings = index.settings()
    values = {**settings.model_dump(mode="json"), "store": {"kind": "discard"}}
    values["store"]["path"] = str(index.folder / "counts")
    counting = type(settings).model_validate(values, strict=False)
    for expected in ("added", "unchanged"):
        executor = InlineExecutor()
        report = ingest(counting, executor)
        executor.close()
        assert getattr(report.documents, expected) == 8
        assert report.stored_records > 0


@pytest.mark.parametrize(
    ("executor", "typed", "begins"),
    [
        ("auto", {}, "inline"),
        ("auto", {"address": "10.0.0.1:6379"}, "ray"),
        ("inline", {}, "inline"),
        ("inline", {"address": "10.0.0.1:6379"}, "ray"),
        ("inline", {"ray": True}, "ray"),
        ("ray", {}, "ray"),
        ("ray", {"local": True}, "inline"),
    ],
)
def test_what_is_typed_comes_before_the_settings(index, monkeypatch, executor, typed, begins):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    settings = index.settings(executor=executor)
    choice = {"local": False, "may_be_small": True, **typed}
    with running(settings, RunOptions(), **choice) as (first, options):
        assert first.name == begins
        assert (options.larger is None) == (executor != "auto" or bool(typed))
