"""Reports: what does not add up is named, and what was written reads back."""

from dataclasses import fields, replace

import pytest

from embedmill.counts import ChunkCounts, DocumentCounts, RateUse, RecordCounts, WriteCounts
from embedmill.errors import AlreadyExistsError, DamagedFileError, NewerFormatError
from embedmill.run_report import RunReport, read_reports, start_run, write_report
from embedmill.sealed_json import sealed
from embedmill.testing.memory_workspace import MemoryWorkspace
from pipelines.summary import summary, verdict

NOW = "2031-01-02T03:04:05+00:00"
REPORT = RunReport(
    run="20310102T030405Z",
    index="an-index",
    version="v1",
    pipeline="ingest",
    executor="inline",
    status="partial",
    started=NOW,
    seconds=1.5,
    documents=DocumentCounts(
        read=1010, added=1, changed=2, unchanged=1003, dead=4, empty=5, removed=6
    ),
    chunks=ChunkCounts(chunks=15, embedded=1, reused=2, deduplicated=3, dead=9, truncated=1),
    records=RecordCounts(upserted=5, deleted=6, rejected=1),
    rate=RateUse(requests=7, tokens=8_000, throttled=2, waited_s=1.25, dollars=0.5),
    live_documents=1006,
    live_records=2000,
    stored_records=2000,
)


@pytest.fixture
def workspace():
    return MemoryWorkspace()


def begin(workspace, now=NOW):
    return start_run(workspace, "an-index", now, pipeline="ingest", version="v1")


def test_a_report_reads_back_as_it_was(workspace):
    begin(workspace)
    write_report(workspace, REPORT)
    assert list(read_reports(workspace, "an-index")) == [(REPORT.run, REPORT)]


def test_a_report_of_a_newer_embedmill_is_refused_by_name(workspace):
    path = f"indexes/an-index/runs/{REPORT.run}/report.json"
    workspace.create(path, sealed({**REPORT.to_json(), "colour": "blue"}))
    with pytest.raises(NewerFormatError, match=r"report\.json has colour"):
        list(read_reports(workspace, "an-index"))


def test_a_report_is_written_once(workspace):
    write_report(workspace, REPORT)
    with pytest.raises(AlreadyExistsError):
        write_report(workspace, replace(REPORT, status="succeeded"))


def test_a_run_that_has_not_ended_has_no_report(workspace):
    run = begin(workspace)
    assert list(read_reports(workspace, "an-index")) == [(run, None)]


def test_ids_of_runs_grow_whatever_the_clock_says(workspace):
    runs = [begin(workspace) for _ in range(12)]
    runs.append(begin(workspace, "2029-01-01T00:00:00+00:00"))
    assert runs == sorted(set(runs))
    assert [run for run, _ in read_reports(workspace, "an-index")] == runs[::-1]


def test_a_torn_report_is_named(workspace):
    path = write_report(workspace, REPORT)
    workspace.files[path] = workspace.files[path][:-3]
    with pytest.raises(DamagedFileError, match=path):
        list(read_reports(workspace, "an-index"))


def test_counts_that_add_up_are_no_problem():
    assert REPORT.problems() == []
    assert REPORT.dead_letters == 4 + 9 + 1


def broken(part, name):
    counts = getattr(REPORT, part)
    return replace(REPORT, **{part: replace(counts, **{name: getattr(counts, name) + 1})})


@pytest.mark.parametrize("name", ["read", "added", "changed", "unchanged", "dead"])
def test_documents_that_do_not_add_up_are_a_problem(name):
    assert len(broken("documents", name).problems()) == 1


@pytest.mark.parametrize("name", ["chunks", "embedded", "reused", "deduplicated", "dead"])
def test_chunks_that_do_not_add_up_are_a_problem(name):
    assert len(broken("chunks", name).problems()) == 1


def test_a_store_that_counts_otherwise_is_a_problem():
    problems = replace(REPORT, stored_records=1999).problems()
    assert problems == ["2,000 records applied, but the store counts 1,999"]


def test_counts_are_added_name_by_name():
    for kind in (DocumentCounts, ChunkCounts, RecordCounts, RateUse, WriteCounts):
        one = kind(*range(len(fields(kind))))
        # Of limits that a provider states the lowest counts: they are no sums.
        doubled = (n if f.name.startswith("stated_") else 2 * n for n, f in enumerate(fields(kind)))
        assert one + one == kind(*doubled)


def test_the_summary_shows_every_number_that_is_added_up():
    text = "\n".join(summary(REPORT))
    for part in (
        "1,010 read = 1 added + 2 changed + 1,003 unchanged + 4 dead; 6 removed; 5 without text",
        "15 = 1 embedded + 2 reused + 3 deduplicated + 9 dead; 1 cut at the model's window",
        "5 written, 6 deleted, 1 refused",
        "7 in realtime, 2 refused for the rate, 8,000 tokens, $0.5000; 1.2 s waited",
        "2,000 records applied = 2,000 in the store, 1,006 documents",
        "completed with 14 dead letters",
    ):
        assert part in text


@pytest.mark.parametrize(
    ("read", "size", "said"),
    [
        (0, 0, "none of them read, 9 listed as before"),
        (1, 712, "1 of them read (712 bytes), 9 listed as before"),
        (1_000, 3 * 2**20, "1,000 of them read (3.0 MiB), 9 listed as before"),
    ],
)
def test_what_was_not_read_does_not_count_as_read(read, size, said):
    documents = DocumentCounts(read=read + 9, unchanged=read + 9, recognised=9)
    [line] = [
        line
        for line in summary(replace(REPORT, documents=documents, read_bytes=size))
        if line.startswith("documents")
    ]
    assert f"{read + 9:,} listed = " in line
    assert line.endswith(f"; {said}")


def test_the_verdict_says_how_it_went():
    done = replace(REPORT, status="succeeded")
    assert verdict(done) == "succeeded"
    idle = replace(done, chunks=ChunkCounts(), records=RecordCounts())
    assert verdict(idle).startswith("nothing to do")
    assert verdict(replace(REPORT, status="failed", error="no space")) == "failed: no space"


def test_a_run_that_ended_before_it_counted_shows_no_totals():
    early = replace(REPORT, live_documents=-1, live_records=-1, stored_records=-1)
    assert "in the store" not in "\n".join(summary(early))
