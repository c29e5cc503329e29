"""Pruning: what nobody needs goes, what readers see and the only copy of anything stays."""

from contextlib import suppress
from dataclasses import replace

import pytest

from embedmill.assembly import store_of
from embedmill.errors import IndexLockedError, RefusedError
from embedmill.lease import take_lease
from embedmill.manifest import Manifest
from embedmill.pruning import prunable
from embedmill.run_report import read_reports, start_run
from embedmill.version_settings import KeepSettings
from pipelines.prune import prune, retire
from pipelines.run_options import RunOptions
from pipelines.short_run import short_run

TEXTS = {"a": "one two three", "b": "red green blue"}
LONG_AGO = "2001-01-01T00:00:00+00:00"
NOW = "2001-01-31T00:00:00+00:00"


@pytest.fixture
def index(small_index):
    """Version 2 is published, version 1 is retired and over the same chunks."""
    made = small_index(keep={"versions": 0, "days": 0})
    made.ingest(TEXTS)
    made.swap(embedder={"kind": "hashing", "dimension": 12})
    made.reembed()
    made.publish()
    return made


def pruned(index, *, take_over=False, **how):
    with index.seams():
        options = RunOptions(sleep=index.clock.sleep, take_over=take_over)
        return prune(index.settings, options, **how)


def collections(index):
    return list(store_of(index.settings).collections())


def test_records_and_vectors_go_and_shared_chunks_stay(index):
    one, two = index.manifest.versions
    done = pruned(index)
    assert [version.number for version in done.versions] == [1]
    assert collections(index) == ["small--v2"]
    assert index.count_of(f"vectors/{one.chunking.id}/{one.embedding.id}") == 0
    assert index.count_of("applied/small--v1") == 0
    assert index.count_of(f"vectors/{two.chunking.id}/{two.embedding.id}") > 0
    assert index.count_of(f"chunks/{one.chunking.id}") > 0
    assert index.manifest.version(1).pruned
    assert index.ingest().status == "succeeded"


def test_chunks_of_no_version_go_too(small_index):
    index = small_index(keep={"versions": 0, "days": 0})
    index.ingest(TEXTS)
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    index.reembed()
    index.publish()
    one, two = index.manifest.versions
    pruned(index)
    assert index.count_of(f"chunks/{one.chunking.id}") == 0
    assert index.count_of(f"chunks/{two.chunking.id}") > 0


def test_a_recipe_is_built_again_whatever_a_killed_prune_has_left(small_index, monkeypatch):
    index = small_index(keep={"versions": 0, "days": 0}, shard_count=1)
    for count in (1, 2, 3):
        index.ingest({str(number): "one two three" for number in range(count)})
    index.swap(chunker={"kind": "text", "max_tokens": 2})
    index.reembed()
    index.publish()
    index.swap(chunker={"kind": "text", "max_tokens": 4})
    saved, real, survived = index.save(), index.workspace.delete, False
    for number in range(20):
        deleted = iter(range(number))

        def delete(paths, deleted=deleted):
            for path in paths:
                if next(deleted, None) is None:
                    raise KeyboardInterrupt
                real([path])

        index.restore(saved)
        with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
            patch.setattr(index.workspace, "delete", delete)
            pruned(index, take_over=True)
            survived = True
        assert index.reembed(take_over=True).documents.read == 3
        assert index.documents().keys() == {"0", "1", "2"}
        assert index.ids() == index.expected_ids()
    assert survived


def test_there_is_no_way_back_to_what_was_pruned(index):
    pruned(index)
    with pytest.raises(RefusedError, match="no earlier version"):
        index.rollback()
    for go in (index.rollback, index.publish):
        with pytest.raises(RefusedError, match="were pruned"):
            go(1)
    with pytest.raises(RefusedError, match="pruned already"):
        pruned(index, number=1)


def test_its_recipe_can_be_built_again_under_a_new_number(index):
    pruned(index)
    index.swap(embedder={"kind": "hashing", "dimension": 8})
    assert index.reembed().chunks.embedded == 2
    assert [version.state for version in index.manifest.versions] == [
        "retired",
        "published",
        "ready",
    ]


def test_a_dry_run_changes_nothing(index):
    files = dict(index.workspace.files)
    assert [version.number for version in pruned(index, dry_run=True).versions] == [1]
    assert index.workspace.files == files
    assert collections(index) == ["small--v1", "small--v2"]


@pytest.mark.parametrize("name", ["lease", "build-lease"])
def test_nothing_is_pruned_while_a_run_or_a_build_goes_on(index, name):
    with take_lease(index.workspace, "small", "other", name=name), pytest.raises(IndexLockedError):
        pruned(index)
    assert collections(index) == ["small--v1", "small--v2"]


def test_an_alias_that_lags_is_moved_before_its_collection_goes(index):
    store_of(index.settings).set_alias("small", "small--v1")
    pruned(index)
    assert store_of(index.settings).alias_target("small") == "small--v2"
    assert collections(index) == ["small--v2"]


def test_by_default_the_version_before_stays(index):
    index.swap(keep={})
    done = pruned(index)
    assert done.versions == []
    assert [(version.number, why.split(" (")[0]) for version, why in done.kept] == [
        (1, "the way back")
    ]
    assert pruned(index, number=1).versions[0].number == 1


def several(index):
    """A manifest with versions 1 to 4 retired on different days, 5 given up, 2 published."""
    version = replace(index.manifest.version(1), published=LONG_AGO)
    days = {1: "2001-01-01", 3: "2001-01-10", 4: "2001-01-29"}
    versions = [
        replace(version, number=n, state="retired", retired=f"{day}T00:00:00+00:00")
        for n, day in days.items()
    ]
    given_up = replace(version, number=5, state="failed", published=None, retired=LONG_AGO)
    seen = replace(version, number=2, state="published", retired=None)
    versions = sorted([*versions, given_up, seen], key=lambda one: one.number)
    return replace(index.manifest, versions=tuple(versions))


@pytest.mark.parametrize(
    ("keep", "going"),
    [
        (KeepSettings(versions=0, days=0), [1, 3, 4, 5]),
        (KeepSettings(versions=1, days=0), [1, 3, 5]),
        (KeepSettings(versions=2, days=0), [1, 5]),
        (KeepSettings(versions=0, days=7), [1, 3, 5]),
        (KeepSettings(versions=0, days=25), [1, 5]),
        (KeepSettings(versions=1, days=100), []),
    ],
)
def test_the_latest_and_the_young_stay(index, keep, going):
    found = prunable(several(index), keep, now=NOW)
    assert [version.number for version in found.versions] == going
    assert len(found.versions) + len(found.kept) == 4


def test_without_a_published_version_any_may_be_the_only_copy(small_index):
    index = small_index()
    index.ingest(TEXTS)
    Manifest(index.workspace, "small").amend(1, lambda v: replace(v, state="retired"))
    with pytest.raises(RefusedError, match="only copy"):
        pruned(index)


def test_a_version_that_is_built_is_given_up_first(small_index):
    index = small_index(keep={"versions": 0, "days": 0})
    index.ingest(TEXTS)
    index.swap(embedder={"kind": "hashing", "dimension": 12})
    index.reembed()
    with pytest.raises(RefusedError, match="v2 is ready and stays") as caught:
        pruned(index, number=2)
    assert caught.value.hint == "give it up first: embedmill retire 2 -c SETTINGS"
    with index.seams():
        retire(index.settings, 2)
        with pytest.raises(RefusedError, match="readers see v1"):
            retire(index.settings, 1)
    pruned(index)
    assert collections(index) == ["small--v1"]
    with index.seams():
        assert retire(index.settings, 2).version(2).state == "failed"


def test_vectors_that_a_version_given_up_shares_with_its_successor_stay(small_index):
    index = small_index(keep={"versions": 0, "days": 0})
    index.ingest(TEXTS)
    index.swap(embedder={"kind": "hashing", "dimension": 12})
    index.reembed()
    with index.seams():
        retire(index.settings, 2)
    # The same recipe again: the vectors are there, only the records are written anew.
    assert index.reembed().chunks.embedded == 0
    layer = f"vectors/{index.version.chunking.id}/{index.version.embedding.id}"
    vectors = index.count_of(layer)
    assert vectors > 0
    pruned(index)
    assert collections(index) == ["small--v1", "small--v3"]
    assert index.count_of(layer) == vectors


def test_embedding_jobs_under_way_are_cancelled_first(index):
    one = index.manifest.version(1)
    # A folder may be called as the file is.
    job = f"indexes/small/jobs/{one.chunking.id}/{one.embedding.id}/an-intent"
    index.workspace.create(f"{job}/intent.json", b"{}")
    with pytest.raises(RefusedError, match="1 embedding job under way"):
        pruned(index)
    assert not index.manifest.version(1).pruned
    index.workspace.create(f"{job}/outcome.json", b"{}")
    pruned(index)
    assert index.count_of("/jobs/") == 0


def test_old_reports_go_and_what_versions_name_stays(index):
    index.swap(keep={"versions": 0, "days": 0, "runs": 2})
    for _ in range(5):
        start_run(index.workspace, "small", NOW, pipeline="ingest", version="v1")
    kept = start_run(index.workspace, "small", NOW, pipeline="ingest", version="v1")
    index.workspace.create(f"indexes/small/runs/{kept}/replayed.json", b"{}")
    before = [run for run, _ in read_reports(index.workspace, "small")]
    pruned(index)
    left = [run for run, _ in read_reports(index.workspace, "small")]
    assert len(left) < len(before)
    assert kept in left
    assert {version.last_run for version in index.manifest.versions} <= set(left)


def test_old_manifest_files_go(index):
    for number in range(120):
        Manifest(index.workspace, "small").amend(
            2, lambda v, n=number: v.noted("seen", at=str(n), by="me")
        )
    pruned(index)
    assert index.count_of("/manifest/") <= 101
    assert index.manifest.published.number == 2


@pytest.mark.parametrize(
    ("error", "status"), [(KeyboardInterrupt(), "interrupted"), (KeyError("a bug"), "failed")]
)
def test_what_ends_it_is_in_its_report_whatever_it_was(index, error, status):
    published = index.manifest.published
    with index.seams(), pytest.raises(type(error)), short_run(index.settings, "prune", published):
        raise error
    _, report = next(read_reports(index.workspace, "small"))
    assert (report.pipeline, report.status) == ("prune", status)
    assert report.error.startswith(f"unexpected {type(error).__name__}")
