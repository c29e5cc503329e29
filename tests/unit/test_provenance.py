"""Where a record comes from, and the trail of a version."""

import json

import pytest
from typer.testing import CliRunner

from embedmill.document import record_id
from embedmill.errors import RefusedError
from embedmill.provenance import Provenance
from embedmill.testing.rehearsal import Rehearsal
from pipelines.cli import app

TEXTS = {
    "a": "one two three four\n\nfive six seven eight",
    "b": "red green blue",
    "twice": "same words again now same words again now",
    "empty": "",
}


@pytest.fixture
def index(small_index):
    made = small_index()
    made.ingest(TEXTS)
    return made


def origins(index, doc_id, chunk=None, version=None):
    one = index.manifest.version(version) if version else index.version
    return Provenance(index.workspace, "small", one).of(doc_id, chunk)


def test_a_chunk_knows_its_record_its_place_and_the_run_that_stored_it(index):
    first, second = origins(index, "a")
    assert (first.chunk_index, second.chunk_index) == (0, 1)
    assert first.record == str(record_id("a", 0))
    assert first.vector == "embedded"
    assert first.made_in == f"{first.segment} row {first.row}"
    assert (first.run, first.job, first.note) == (index.version.last_run, "", "")
    assert origins(index, "a", 1) == [second]


def test_a_vector_that_was_taken_over_is_followed_to_where_it_was_made(index):
    before = origins(index, "a", 0)[0]
    index.ingest({**TEXTS, "a": "one two three four\n\nand something else here"})
    changed = origins(index, "a", 0)[0]
    assert changed.vector == "reused"
    assert changed.made_in == before.made_in
    assert changed.run != before.run
    index.ingest({**TEXTS, "a": "one two three four\n\nat last"})
    assert origins(index, "a", 0)[0].made_in == before.made_in


def test_the_runs_that_cut_and_embedded_it_stay_known(index):
    first = index.version.last_run
    index.ingest({**TEXTS, "a": "one two three four\n\nand something else here"})
    second = index.version.last_run
    old, new = origins(index, "a")
    assert (old.chunked_by, old.embedded_by, old.run) == (second, first, second)
    assert (new.chunked_by, new.embedded_by) == (second, second)
    twice = origins(index, "twice")
    assert {(one.chunked_by, one.embedded_by) for one in twice} == {(first, first)}
    # A compaction writes all of it anew, twice.
    for number in range(2):
        index.ingest({**TEXTS, "a": "one two three four\n\nand", "new": f"text {number}"})
        index.compact()
    assert len(index.chunks.committed()) == sum(map(len, index.chunks.committed().values()))
    kept = origins(index, "b", 0)[0]
    assert (kept.chunked_by, kept.embedded_by, kept.run) == (first, first, kept.run)
    third = origins(index, "a")
    assert third[0].embedded_by == first
    assert third[1].chunked_by not in (first, second)


def test_files_of_before_runs_were_noted_are_read(index):
    from embedmill.parquet_files import from_parquet, to_parquet

    for path in [path for path in index.workspace.files if path.endswith(".parquet")]:
        table = from_parquet(index.workspace.files[path], path)
        notes = {k: v for k, v in table.schema.metadata.items() if k != b"run"}
        if "made_by" in table.column_names:
            table = table.drop_columns(["made_by"]).replace_schema_metadata(notes)
            index.workspace.files[path] = to_parquet(table, compression="none")
    found = origins(index, "a", 0)[0]
    assert (found.chunked_by, found.embedded_by) == ("", "")
    assert index.ingest({**TEXTS, "a": "one two three four\n\nlast"}).chunks.reused == 1
    # What is not known is not said of the run that only took it over.
    assert origins(index, "a", 0)[0].embedded_by == ""
    index.compact()
    kept = origins(index, "b", 0)[0]
    assert (kept.chunked_by, kept.embedded_by) == ("", "")


def test_an_equal_text_is_named_as_such(index):
    first, second = origins(index, "twice")
    assert {first.vector, second.vector} == {"embedded", "equal-text"}
    assert first.made_in == second.made_in


def test_a_document_without_text_has_no_chunks(index):
    assert list(origins(index, "empty")) == []


def test_what_is_not_there_is_refused(index):
    with pytest.raises(RefusedError, match="v1 of index 'small' has no document 'nobody'"):
        origins(index, "nobody")
    with pytest.raises(RefusedError, match="has 2 chunks in v1"):
        origins(index, "a", 2)


def test_each_version_answers_for_itself(index):
    index.swap(embedder={"kind": "hashing", "dimension": 12})
    index.reembed()
    one, two = (origins(index, "b", 0, version)[0] for version in (1, 2))
    assert (one.record, one.segment) == (two.record, two.segment)
    assert one.run != two.run


@pytest.fixture
def shell(tmp_path):
    """An index on disk with two versions, and the command line."""
    rehearsal = Rehearsal(tmp_path)
    rehearsal.write({f"doc-{n}": f"text number {n} of all" for n in range(12)})
    rehearsal.settings()
    new = tmp_path / "new.yaml"
    new.write_text(rehearsal.config.read_text().replace("dimension: 32", "dimension: 48"))

    def run(*arguments, config=rehearsal.config, status=0):
        done = CliRunner().invoke(app, [*arguments, "--config", str(config)])
        assert done.exit_code == status, done.output
        return done.stdout

    ingested = CliRunner().invoke(app, ["ingest", str(rehearsal.config), "--local"])
    assert ingested.exit_code == 0, ingested.output
    built = CliRunner().invoke(app, ["reembed", str(new), "--local"])
    assert built.exit_code == 0, built.output
    run("publish", "--local", "--force", config=new)
    run.new = new
    return run


def test_the_trail_of_a_version_can_be_read(shell):
    said = shell("versions", "show", "v2")
    for part in (
        "v2  published",
        "begun beside v1",
        "reembed",
        "published",
        "embedding jobs: none",
    ):
        assert part in said
    record = json.loads(shell("versions", "show", "2", "--json"))
    assert [line["event"] for line in record["history"]] == ["begun", "ready", "published"]
    assert {run["pipeline"] for run in record["runs"]} == {"reembed", "publish"}
    assert record["gates"]
    assert "v1  retired" in shell("versions")


def test_why_answers_for_all_versions_or_one(shell):
    said = shell("why", "doc-3")
    assert "v1 retired" in said
    assert "v2 published" in said
    assert said.count(str(record_id("doc-3", 0))) == 2
    found = json.loads(shell("why", "doc-3", "0", "--version", "v2", "--json"))
    assert list(found) == ["v2"]
    assert found["v2"][0]["vector"] == "embedded"
    shell("why", "nobody", status=4)


def test_a_life_of_commands(shell):
    assert "nothing was changed" in shell("publish", "--local", config=shell.new)
    assert "v1 now instead of v2" in shell("rollback")
    assert "saw v1 already" in shell("rollback")
    watched = shell(
        "publish", "--local", "--force", "--watch", "1s", "--check", "false",
        "--check-every", "0.1s", config=shell.new, status=11,
    )  # fmt: skip
    assert "taken back to v1" in watched
    shell("publish", "--watch", "1s", status=2)
    assert "v2 would be deleted" in shell("prune", "2", "--dry-run")
    assert "v2 deleted" in shell("prune", "v2")
    assert "no version to delete" in shell("prune")
    shell("rollback", "2", status=4)
    shell("retire", "1", status=4)
