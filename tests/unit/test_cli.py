"""The command line, as a stranger meets it: exit statuses, and messages that say what to do."""

import json
import re
import signal
from datetime import UTC, datetime, timedelta

import pytest
import yaml
from typer.testing import CliRunner

from embedmill.assembly import Seams, seams
from embedmill.lease import take_lease
from embedmill.run_report import start_run
from embedmill.sealed_json import sealed, unsealed
from embedmill.vector_stores import memory
from embedmill.workspace import LocalWorkspace
from pipelines.cli import app

SETTINGS = {
    "index": "fruit",
    "workspace": "ws",
    "source": {"kind": "table", "path": "rows.jsonl"},
    "chunker": {"kind": "text", "max_tokens": 20},
    "embedder": {"kind": "hashing", "dimension": 16},
    "store": {"kind": "memory"},
    "shard_count": 2,
}
FRUIT = [
    {"id": "a", "text": "apples are red"},
    {"id": "b", "text": "bananas are bent"},
    {"id": "c", "text": "cherries come in pairs"},
]


class Shell:
    """A directory with settings and rows, and somebody who types commands there."""

    def __init__(self, folder):
        self.folder = folder

    def settings(self, name="s.yaml", **more):
        (self.folder / name).write_text(yaml.safe_dump({**SETTINGS, **more}))

    def rows(self, rows, name="rows.jsonl"):
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        (self.folder / name).write_text("".join(line + "\n" for line in lines))

    def files(self, **contents):
        folder = self.folder / "docs"
        folder.mkdir(exist_ok=True)
        for name, content in contents.items():
            (folder / f"{name}.txt").write_bytes(content)
        self.settings(source={"kind": "files", "path": "docs"})

    def run(self, *words):
        """Type a command; the result with its two streams."""
        return CliRunner().invoke(app, [*map(str, words)], catch_exceptions=False)

    def ingest(self, *words):
        return self.run("ingest", "s.yaml", "--local", *words)

    def letters(self, *words):
        return json.loads(self.run("dlq", "list", "-c", "s.yaml", "--json", *words).stdout)


@pytest.fixture
def shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr(memory, "_CONTENTS", {})
    shell = Shell(tmp_path)
    shell.settings()
    shell.rows(FRUIT)
    return shell


def said(result, status, *parts):
    """The command ended so, with these words in what a person sees, in this order."""
    assert result.exit_code == status, result.output
    flat = " ".join(result.output.split())
    assert re.search(".*".join(map(re.escape, parts)), flat), flat


def test_all_well_is_0_with_a_summary_that_adds_up(shell):
    said(
        shell.ingest(),
        0,
        "documents 3 read = 3 added + 0 changed + 0 unchanged + 0 dead",
        "chunks 3 = 3 embedded",
        "records 3 written",
        "fruit v1: 3 records applied = 3 in the store, 3 documents",
        "succeeded",
    )
    said(shell.ingest(), 0, "3 unchanged", "nothing to do, the index is in line with its source")


def test_progress_and_warnings_stay_out_of_the_results(shell):
    shell.rows([*FRUIT, "no json"])
    result = shell.ingest("--json")
    report = json.loads(result.stdout)
    assert result.exit_code == 3
    assert (report["status"], report["dead_letters"]) == ("partial", 1)


@pytest.mark.parametrize(
    ("row", "where", "what"),
    [
        ('{"id": "d", "text": "cut', "rows.jsonl:4", "Unterminated string starting at column 21"),
        ("[1]", "rows.jsonl:4", "the line is JSON, but no object"),
        ({"text": "x"}, "rows.jsonl:4", "there is no id; the row has 'text'; `source.id_column`"),
        ({"id": ""}, "rows.jsonl:4", "the id is empty"),
        ({"id": "d"}, "rows.jsonl:4", "there is no text; the row has 'id'; `source.text_columns`"),
        ({"id": "a", "text": "x"}, "rows.jsonl:4", "an earlier row of the source has the id 'a'"),
        ({"id": 1.5, "text": "x"}, "rows.jsonl:4", "the id is 1.5; ids are text or whole numbers"),
    ],
)
def test_a_bad_row_is_3_and_its_letter_says_which_line_and_why(shell, row, where, what):
    shell.rows([*FRUIT, row])
    said(shell.ingest(), 3, "1 dead", "1 dead letter (see: embedmill dlq list -c s.yaml)")
    said(
        shell.run("dlq", "list", "-c", "s.yaml"), 0, "1 x read", where, what, "dlq replay -c s.yaml"
    )


def test_dead_rows_that_are_tolerated_are_0(shell):
    shell.rows([*FRUIT, "no json"])
    said(shell.ingest("--tolerate-dead"), 0, "completed with 1 dead letter")


def test_a_document_without_text_is_counted_and_no_failure(shell):
    shell.rows([*FRUIT, {"id": "d", "text": "  \n"}])
    said(
        shell.ingest("-v"), 0, "d has no text", "4 read = 4 added", "1 without text", "4 documents"
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--set", "source.path=gone.jsonl"], ["'gone.jsonl'", "No such file", "`source.path`"]),
        (["--source", "nowhere"], ["'nowhere'", "No such file", "next:"]),
        (["--set", "source.path=empty"], ["'empty' holds no table", "next:", ".jsonl"]),
        (["--set", "source.id_column=key", "--set", "source.path=t.csv"],
         ["t.csv: there is no column 'key'; the columns are 'id', 'text'", "`source.id_column`"]),
    ],
)  # fmt: skip
def test_a_source_that_cannot_be_read_is_4_and_names_the_setting(shell, words, parts):
    (shell.folder / "empty").mkdir()
    (shell.folder / "t.csv").write_text("id,text\n1,x\n")
    said(shell.ingest(*words), 4, *parts)


def test_files_of_which_none_matches_are_4_with_the_patterns(shell):
    shell.files(a=b"x")
    said(
        shell.ingest("--set", 'source.include=["*.rst"]'),
        4,
        "no file in 'docs' matches *.rst; of other files there are 1 .txt",
        "`source.include`",
    )


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["ingest", "none.yaml", "--local"], ["none.yaml: there is no such file", "s.yaml"]),
        (["ingest", "s.yaml", "--set", "embeder.x=1"], ["embeder", "did you mean `embedder`"]),
        (["ingest", "s.yaml", "--set", "shard_count=many"], ["shard_count"]),
        (["ingest", "s.yaml", "--source", "docs", "--set", "index=docs"], ["--index docs"]),
        (["search", "x", "-c", "s.yaml", "--where", "doc_id"], ["KEY=VALUE", "doc_id=guide/a.md"]),
        (["search", "x", "-c", "s.yaml", "-k", "99999999999999999999"], ["-k", "to 100000"]),
        (["export", "s.yaml", "--to", ""], ["--to is empty"]),
        (["publish", "-c", "s.yaml", "--watch", "1m", "--check", " "], ["--check is empty"]),
        (["search", "x"], ["embedmill.yaml: there is no such file", "s.yaml"]),
        (["ingest"], ["embedmill.yaml: there is no such file", "--config"]),
        (["dlq", "list", "-c", "s.yaml", "--stage", "reading"], ["'reading' is not one of"]),
        (["nonsense"], ["No such command 'nonsense'"]),
        (["audit", "s.yaml"], ["unexpected extra argument", "option of this command: -c s.yaml"]),
        (["search", "x", "s.yaml"], ["option of this command: -c s.yaml"]),
        (["dlq", "show", "1a", "s.yaml"], ["option of this command: -c s.yaml"]),
        (["versions", "s.yaml"], ["option of this command: -c s.yaml"]),
        (["jobs", "s.yaml"], ["option of its commands: embedmill jobs list -c s.yaml"]),
        (["ingest", "s.yaml"], ["memory store is gone when its process ends", "add --local"]),
    ],
)  # fmt: skip
def test_wrong_usage_and_wrong_settings_are_2_with_the_way_out(shell, words, parts):
    (shell.folder / "docs").mkdir()
    (shell.folder / "docs" / "a.txt").write_text("x")
    result = shell.run(*words)
    assert result.exit_code == 2, result.output
    flat = " ".join(result.output.replace("│", " ").lower().split())
    assert all(part.lower() in flat for part in parts), flat


def test_what_cannot_be_read_for_settings_is_told_as_it_is(shell):
    for words in (
        ["audit", "rows.jsonl"],
        ["ingest", "s.yaml", "t.yaml"],
        ["kinds", "a", "s.yaml"],
    ):
        result = shell.run(*words)
        assert (result.exit_code, "option" in result.output.partition("Error")[2]) == (2, False)


def test_what_is_to_be_typed_next_names_the_settings_by_the_path_that_was_given(shell):
    (shell.folder / "my index").mkdir()
    (shell.folder / "s.yaml").rename(shell.folder / "my index" / "s.yaml")
    config = ["-c", "my index/s.yaml"]
    said(shell.run("jobs", "list", *config), 4, "run embedmill ingest 'my index/s.yaml' first")
    said(
        shell.run("rollback", *config), 4, "see what there is with: embedmill versions -c 'my index"
    )


def test_a_wrong_settings_file_is_2_with_the_line(shell):
    shell.settings(chunker={"kind": "text", "max_tokns": 3})
    said(shell.ingest(), 2, "s.yaml:", "chunker.max_tokns: unknown key; did you mean `max_tokens`?")


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"embedder": {"kind": "hashing", "dimension": 32}}, ["dimension: 16 -> 32"]),
        ({"chunker": {"kind": "text", "max_tokens": 10}}, ["max_tokens: 20 -> 10"]),
        ({"metric": "dot"}, ["metric: 'cosine' -> 'dot'"]),
        ({"shard_count": 3}, ["has 2 shards for its whole life", "say 3", "set shard_count: 2"]),
    ],
)
def test_settings_of_another_recipe_are_4_with_both_values_and_change_nothing(shell, change, parts):
    shell.ingest()
    shell.settings(**change)
    shell.rows([*FRUIT, {"id": "new", "text": "new"}])
    said(shell.ingest(), 4, *parts)
    shell.settings()
    said(shell.run("status", "-c", "s.yaml"), 0, "3 documents", "left: no segments")


def test_a_source_that_lost_much_is_9_until_it_is_allowed(shell):
    shell.ingest()
    shell.rows(FRUIT[:1])
    said(
        shell.ingest(),
        9,
        "2 of 3 documents are gone from the source",
        "max_delete_fraction (0.2)",
        "none was deleted",
        "--allow-deletes",
        "sync: append",
    )
    said(shell.run("status", "-c", "s.yaml"), 0, "2 gone but kept", "again with --allow-deletes")
    said(shell.ingest("--allow-deletes"), 0, "2 removed", "2 deleted")
    said(shell.ingest(), 0, "nothing to do")


def test_a_source_of_which_some_ids_cannot_be_read_deletes_nothing(shell):
    shell.ingest()
    shell.rows([*FRUIT[:2], "no json"])
    kept = "2 unchanged + 1 dead; 1 gone but kept, since no id could be read of 1 row"
    said(shell.ingest("--allow-deletes"), 3, kept, "3 documents")


def test_a_source_that_is_appended_to_may_forget(shell):
    shell.settings(sync="append")
    shell.ingest()
    shell.rows(FRUIT[:1])
    said(shell.ingest(), 0, "1 unchanged", "3 documents")


def test_a_run_in_which_all_rows_die_is_5_and_publishes_nothing(shell):
    shell.rows(["no", "json"])
    said(
        shell.ingest(),
        5,
        "all 2 documents of this run died; one of them, rows.jsonl:",
        "Expecting value",
        "embedmill dlq list -c s.yaml",
    )
    said(shell.run("search", "x", "-c", "s.yaml"), 4, "no published version", "embedmill ingest")
    assert len(shell.letters()) == 2


def test_a_replay_of_an_index_that_was_never_complete_publishes_nothing(shell):
    shell.rows(["no", "json"])
    shell.ingest()
    shell.rows(FRUIT)
    shell.run("dlq", "replay", "-c", "s.yaml", "--local")
    said(shell.run("search", "x", "-c", "s.yaml"), 4, "no published version")
    said(shell.ingest(), 0, "3 documents")
    said(shell.run("search", "apples", "-c", "s.yaml"), 0, "1. ")


def test_an_index_that_somebody_else_holds_is_6_with_the_holder(shell):
    shell.ingest()
    with take_lease(LocalWorkspace(shell.folder / "ws"), "fruit", "ingest"):
        said(shell.ingest(), 6, "index 'fruit' is in use", "ingest by process", "--take-over")
    said(shell.ingest(), 0, "nothing to do")


class Interrupting:
    """Asks the run to stop with its first call."""

    def __init__(self, real, number):
        self._real = real
        self._number = number
        self.recipe = real.recipe
        self._asked = False

    def embed(self, texts, role):
        if not self._asked:
            self._asked = True
            signal.raise_signal(self._number)
        return self._real.embed(texts, role)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_run_that_is_asked_to_stop_is_75_and_goes_on_when_run_again(shell, number, request):
    # The tests may run beneath nohup themselves.
    before = signal.signal(number, signal.SIG_DFL)
    request.addfinalizer(lambda: signal.signal(number, before))
    with seams(Seams(embedder=lambda real: Interrupting(real, number))):
        said(shell.ingest(), 75, "stopping after what is in flight", "next: run the same command")
    said(shell.run("status", "-c", "s.yaml"), 0, "interrupted", "left:", "run the same ingest")
    said(shell.ingest(), 0, "3 records applied = 3 in the store")
    said(shell.run("status", "-c", "s.yaml"), 0, "left: no segments")


def test_a_run_beneath_nohup_does_not_hear_that_the_terminal_is_gone(shell):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with seams(Seams(embedder=lambda real: Interrupting(real, signal.SIGHUP))):
            said(shell.ingest(), 0, "3 records applied = 3 in the store")
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_fallback_encoding_that_is_set_later_holds_from_the_next_ingest_on(shell):
    shell.files(good=b"good", bad=b"caf\xe8 cr\xe8me")
    said(shell.ingest(), 3, "2 read = 1 added", "1 dead")
    western = ("--set", "source.fallback_encoding=cp1252")
    said(shell.ingest(*western), 0, "1 added + 0 changed + 1 unchanged + 0 dead")
    said(shell.run("search", "crème", "-c", "s.yaml"), 0, "cafè crème")
    said(shell.ingest(*western), 0, "2 unchanged + 0 dead", "nothing to do")
    eastern = ("--set", "source.fallback_encoding=cp1250")
    said(shell.ingest(*eastern), 0, "0 added + 1 changed + 1 unchanged")
    said(shell.run("search", "crčme", "-c", "s.yaml"), 0, "cafč crčme")
    said(shell.run("audit", "-c", "s.yaml", "--with-source", *eastern), 0)
    # What nothing decodes any more stays as it was, and is said.
    said(shell.ingest(), 3, "0 changed + 1 unchanged + 1 dead", "2 documents")


def test_a_file_in_another_encoding_is_put_right_and_replayed(shell):
    shell.files(good=b"good", bad=b"caf\xe9")
    said(shell.ingest(), 3, "2 read = 1 added", "1 dead")
    letter = shell.letters()[0]
    assert letter["uri"] == "bad.txt"
    said(
        shell.run("dlq", "show", letter["id"], "-c", "s.yaml"),
        0,
        "stage parse",
        "code encoding",
        "byte 0xe9 at offset 3; save it as UTF-8, or set `source.fallback_encoding`",
    )
    # Nothing was put right: the letter stays.
    said(shell.run("dlq", "replay", letter["id"], "-c", "s.yaml", "--local"), 3, "1 dead letter")
    assert [x["runs"] for x in shell.letters()] == [2]
    (shell.folder / "docs" / "bad.txt").write_text("café")
    said(shell.run("dlq", "replay", letter["id"], "-c", "s.yaml", "--local"), 0, "1 added")
    said(shell.run("dlq", "list", "-c", "s.yaml"), 0, "no open dead letters")
    said(shell.run("dlq", "replay", "-c", "s.yaml", "--local"), 0, "nothing to replay")
    said(shell.ingest(), 0, "2 unchanged + 0 dead", "nothing to do")


def test_a_record_that_the_store_will_not_take_is_a_letter_until_the_row_changes(shell):
    big = "x" * (9 * 2**20)
    shell.settings(
        source={"kind": "table", "path": "rows.jsonl", "metadata_columns": ["note"]},
        chunker={"kind": "document", "overflow": "truncate"},
    )
    rows = [{**row, "note": "n"} for row in FRUIT]
    shell.rows([*rows, {"id": "d", "text": "dates", "note": big}])
    said(shell.ingest(), 3, "4 added", "3 written, 0 deleted, 1 refused", "3 records applied = 3")
    said(
        shell.run("dlq", "list", "-c", "s.yaml"),
        0,
        "1 x apply: payload-too-large",
        "rows.jsonl:4, chunk 0",
        "bytes, the store takes",
    )
    said(shell.run("dlq", "replay", "-c", "s.yaml", "--local"), 3, "1 refused")
    shell.rows([*rows, {"id": "d", "text": "dates", "note": "short"}])
    said(shell.ingest(), 0, "1 changed", "1 reused", "4 records applied = 4 in the store")
    assert shell.letters() == []


def test_a_letter_that_nobody_knows_is_4(shell):
    shell.ingest()
    said(shell.run("dlq", "show", "abc", "-c", "s.yaml"), 4, "no open dead letter has the id abc")


def test_letters_are_chosen_by_stage_and_cause(shell):
    shell.rows([*FRUIT, "no json", {"id": "a", "text": "twice"}])
    shell.ingest()
    assert {x["code"] for x in shell.letters()} == {"json", "duplicate-id"}
    assert [x["code"] for x in shell.letters("--code", "json")] == ["json"]
    assert shell.letters("--stage", "embed") == []


def test_few_of_many_equal_letters_are_listed_unless_all_are_asked_for(shell):
    shell.rows([*FRUIT, *["no json"] * 5])
    shell.ingest()
    said(shell.run("dlq", "list", "-c", "s.yaml"), 0, "5 x read: json", "and 2 more (--all)")
    listed = shell.run("dlq", "list", "-c", "s.yaml", "--all").output
    assert all(f"rows.jsonl:{line}" in listed for line in range(4, 9))


def test_an_index_that_is_not_there_says_so(shell):
    shell.ingest()
    for words in (["status"], ["versions"], ["search", "x"], ["dlq", "list"]):
        result = shell.run(*words, "-c", "s.yaml", "--index", "other")
        assert "index 'other'" in result.output
        assert "ingest" in result.output or result.exit_code == 0


def test_what_programs_read_is_json(shell):
    shell.ingest()
    versions = json.loads(shell.run("versions", "-c", "s.yaml", "--json").stdout)
    assert versions[0]["state"] == "published"
    assert versions[0]["counts"] == {"documents": 3, "records": 3, "dead_letters": 0}
    status = json.loads(shell.run("status", "-c", "s.yaml", "--json").stdout)
    assert status["report"]["status"] == "succeeded"
    hits = json.loads(shell.run("search", "bananas", "-c", "s.yaml", "-k", "1", "--json").stdout)
    assert (hits[0]["doc_id"], hits[0]["text"]) == ("b", "bananas are bent")
    where = ["--where", "doc_id=c", "--where", "chunk_index=0"]
    result = shell.run("search", "bananas", "-c", "s.yaml", *where, "--json")
    assert result.exit_code == 0


def test_a_query_of_blanks_is_4(shell):
    shell.ingest()
    said(shell.run("search", " ", "-c", "s.yaml"), 4, "the query cannot be embedded", "blank")


def test_brackets_in_names_and_texts_are_no_markup(shell):
    shell.rows([{"id": "[red]a[/red]", "text": "[bold]apples[/bold] [link"}])
    shell.ingest()
    said(
        shell.run("search", "apples", "-c", "s.yaml"),
        0,
        "[red]a[/red]",
        "[bold]apples[/bold] [link",
    )


@pytest.mark.parametrize("name", ["bob's docs", 'a "b"', "a: {b}, [c] #d", "dömö", "x" * 90])
def test_a_source_given_by_path_goes_into_an_index_of_its_own(shell, name):
    shell.ingest()
    (shell.folder / name).mkdir()
    (shell.folder / name / "a.txt").write_text("plums")
    result = shell.ingest("--source", name)
    said(result, 0, "search it with: embedmill search", "--index", "1 added", "1 document")
    said(shell.run("status", "-c", "s.yaml"), 0, "fruit v1: 3 records")


@pytest.mark.parametrize("name", ["t.jsonl", "T.JSONL", "t.csv", "t.v2.tsv"])
def test_a_table_given_by_path_is_known_by_its_ending(shell, name):
    separator = "\t" if name.endswith("tsv") else ","
    text = '{"id": "1", "text": "x"}\n'
    if "json" not in name.lower():
        text = f"id{separator}text\n1{separator}x\n"
    (shell.folder / name).write_text(text)
    said(shell.ingest("--source", name, "--index", "mine"), 0, "mine v1: 1 record ")


def test_what_is_to_be_typed_about_another_index_names_it(shell):
    (shell.folder / "more.jsonl").write_text('{"id": "1", "text": "x"}\n{"text": "no id"}\n')
    said(shell.ingest("--source", "more.jsonl"), 3, "embedmill dlq list -c s.yaml --index more)")
    told = "embedmill dlq replay -c s.yaml --index more"
    said(shell.run("dlq", "list", "-c", "s.yaml", "--index", "more"), 0, told)
    other = ("--index", "more", "--set", "embedder.dimension=8", "--local")
    told = "embedmill publish 2 -c s.yaml --set embedder.dimension=8 --index more"
    said(shell.run("reembed", "s.yaml", *other), 0, told)


def test_what_is_to_be_typed_repeats_what_set_has_changed(shell):
    shell.ingest()
    other = ("--set", "embedder.dimension=24", "--set", "run.embed_workers=1")
    built = shell.run("reembed", "s.yaml", *other, "--local")
    typed = "embedmill publish 2 -c s.yaml --set embedder.dimension=24"
    said(built, 0, f"v2 is ready; send readers to it with: {typed}")
    said(shell.run(*typed.split()[1:], "--local"), 0, "see v2 now instead of v1")
    said(shell.ingest(), 4, "embedmill publish 1 -c s.yaml sends readers to it")


def test_a_folder_of_tables_given_by_path_is_read_by_the_columns_of_the_settings(shell):
    (shell.folder / "more" / "2026").mkdir(parents=True)
    (shell.folder / "more" / "read.me").write_text("no table")
    (shell.folder / "more" / "2026" / "t.csv").write_text("id,text\n1,x\n2,y\n")
    said(shell.ingest("--source", "more"), 0, "more v1: 2 records")


def test_a_source_is_not_mixed_into_the_index_that_the_settings_fill(shell):
    shell.ingest()
    (shell.folder / "fruit").mkdir()
    (shell.folder / "fruit" / "a.txt").write_text("plums")
    said(shell.ingest("--source", "fruit"), 2, "would go into index 'fruit'", "--index fruit")
    said(shell.run("status", "-c", "s.yaml"), 0, "3 documents")


def test_status_shows_the_last_ingest_and_what_was_run_since(shell):
    shell.ingest()
    shell.run("audit", "-c", "s.yaml")
    said(
        shell.run("status", "-c", "s.yaml"),
        0,
        "documents 3 read = 3 added",
        "audit of v1: succeeded",
        "left: no segments",
    )


def test_status_says_since_when_the_index_is_in_line_and_whether_that_is_too_long_ago(shell):
    """For whatever watches a schedule whose syncs end with 0 while another run has the index."""
    said(shell.run("status", "-c", "s.yaml", "--max-age", "1h"), 7, "no run yet", "late: ")
    shell.ingest()
    said(shell.run("status", "-c", "s.yaml", "--max-age", "1h"), 0, "UTC, 0 min ago, run 2")
    (report,) = shell.folder.glob("ws/indexes/fruit/runs/*/report.json")
    long_ago = datetime.now(UTC) - timedelta(hours=30)
    write_sealed(report, started=long_ago.isoformat(timespec="seconds"))
    # What came later has not brought the index in line.
    shell.rows(FRUIT[:1])
    said(shell.ingest(), 9)
    told = shell.run("status", "-c", "s.yaml", "--max-age", "29h")
    said(
        told, 7, f"as of {long_ago:%Y-%m-%d %H:%M} UTC, 30 h ago", "late: in the last 29h no ingest"
    )
    told = json.loads(shell.run("status", "-c", "s.yaml", "--max-age", "31h", "--json").stdout)
    assert (told["late"], told["synced"]["age_s"] // 3600) == (False, 30)
    said(shell.run("status", "-c", "s.yaml", "--max-age", "soon"), 2, "a time like 90s")


def write_sealed(path, **changes):
    """Change fields of a sealed file."""
    body = unsealed(path.read_bytes(), str(path), remedy="")
    path.write_bytes(sealed({**body, **changes}))


def test_status_tells_a_run_that_goes_on_from_one_that_was_killed(shell):
    shell.ingest()
    workspace = LocalWorkspace(shell.folder / "ws")
    run = start_run(
        workspace, "fruit", "2030-01-01T00:00:00+00:00", pipeline="ingest", version="v1"
    )
    with take_lease(workspace, "fruit", "ingest"):
        going = shell.run("status", "-c", "s.yaml")
        said(going, 0, f"{run} goes on: ingest by process")
        assert "next:" not in going.output
        told = json.loads(shell.run("status", "-c", "s.yaml", "--json").stdout)
        assert told["in_use_by"].startswith("ingest by process")
    said(shell.run("status", "-c", "s.yaml"), 0, f"{run} was killed", "run the same ingest again")


def test_a_store_that_lost_the_collection_says_how_it_is_filled_again(shell):
    shell.ingest()
    memory._CONTENTS.clear()
    said(
        shell.run("search", "apples", "-c", "s.yaml"),
        4,
        "there is no collection 'fruit--v1'",
        "next:",
        "embedmill audit --repair -c s.yaml fills a collection that is lost",
    )
    said(shell.run("audit", "-c", "s.yaml", "--repair"), 0, "3 missing", "audited again: clean")
    said(shell.run("search", "apples", "-c", "s.yaml"), 0, "apples are red")


@pytest.mark.parametrize(
    ("damaged", "words", "remedy"),
    [
        ("applied", ["ingest", "s.yaml", "--local"], "and run embedmill ingest"),
        ("runs", ["status", "-c", "s.yaml"], "only what this run says is lost"),
    ],
)
def test_a_damaged_file_that_can_be_made_again_says_so(shell, damaged, words, remedy):
    shell.ingest()
    files = (shell.folder / "ws" / "indexes" / "fruit" / damaged).rglob("*.json")
    for path in files:
        if path.name != "started.json":
            path.write_text("torn")
    said(shell.run(*words), 4, "does not read back", "next: delete", remedy)


def test_a_damaged_file_is_no_finding_that_a_repair_would_mend(shell):
    shell.ingest()
    damaged = next((shell.folder / "ws").rglob("vectors/**/*.parquet"))
    damaged.write_bytes(b"torn")
    found = shell.run("audit", "-c", "s.yaml")
    said(found, 7, "1 damaged-file", "delete it and run embedmill ingest s.yaml: the segment is")
    assert "--repair" not in found.output
    said(shell.run("audit", "-c", "s.yaml", "--repair"), 7, "audited again: 1 damaged-file left")
    damaged.unlink()
    said(shell.ingest(), 0, "in the store")
    said(shell.run("audit", "-c", "s.yaml"), 0, "no findings")


def test_a_source_given_by_path_is_read_by_the_columns_of_the_settings(shell):
    source = {"kind": "table", "path": "rows.jsonl", "id_column": "docno", "text_columns": ["body"]}
    shell.settings(source=source)
    shell.rows([{"docno": "1", "body": "plums"}], "more.jsonl")
    said(shell.ingest("--source", "more.jsonl"), 0, "1 added")
    said(shell.run("search", "plums", "-c", "s.yaml", "--index", "more"), 0, "1. 1.000 1 ")


def test_a_source_given_by_path_is_read_by_the_patterns_of_the_settings(shell):
    shell.files(apples=b"apples")
    shell.settings(source={"kind": "files", "path": "x", "exclude": ["**/b.txt"]})
    (shell.folder / "docs" / "b.txt").write_text("left out")
    said(shell.ingest("--source", "docs"), 0, "1 added")


@pytest.mark.parametrize(
    "words", [["ingest", "s.yaml", "--source", "a\udcff"], ["search", "a\udcff", "-c", "s.yaml"]]
)
def test_words_that_are_not_utf8_are_refused(shell, words):
    shell.ingest()
    result = shell.run(*words)
    assert result.exit_code in (2, 4)
    assert "is not UTF-8" in result.output


def test_control_characters_of_texts_and_ids_are_shown_and_not_obeyed(shell):
    shell.rows([{"id": "a\x1b[2J\nb", "text": "apples \x1b]0;title\x07 \u202e"}])
    shell.ingest()
    result = shell.run("search", "apples", "-c", "s.yaml")
    said(result, 0, r"a\x1b[2J\nb", r"apples \x1b]0;title\x07 \u202e")
    assert "\x1b" not in result.output
    said(shell.run("why", "zz\x1b[31m", "-c", "s.yaml"), 4, r"\x1b[31m")


@pytest.mark.parametrize(
    "words",
    [["s.yaml"], ["-c", "s.yaml"], ["--config", "s.yaml"], ["s.yaml", "-c", "s.yaml"], []],
    ids=" ".join,
)
def test_the_settings_are_an_argument_or_an_option_or_the_environments(shell, monkeypatch, words):
    if not words:
        monkeypatch.setenv("EMBEDMILL_CONFIG", "s.yaml")
    said(shell.run("ingest", *words, "--local"), 0, "3 added")
    said(shell.run("contract", *words), 0, '"index": "fruit"')


def test_two_settings_files_are_2(shell):
    said(
        shell.run("ingest", "s.yaml", "-c", "t.yaml", "--local"),
        2,
        "two settings files are named: s.yaml and t.yaml",
        "next: leave one of them out",
    )


@pytest.mark.parametrize("command", ["contract", "evaluate", "export"])
def test_a_version_is_named_in_one_way_everywhere(shell, command):
    shell.ingest()
    more = ["--to", "out"] if command == "export" else []
    for name in ("1", "v1"):
        assert shell.run(command, "s.yaml", "--version", name, *more).exit_code == 0
    said(
        shell.run(command, "s.yaml", "--version", "one", *more),
        2,
        "'one' is no version: write 3, or v3",
    )


def test_it_says_which_version_it_is(shell):
    said(shell.run("--version"), 0, "embedmill 0.")


def test_what_a_program_reads_is_json_also_where_there_is_nothing_to_do(shell):
    shell.ingest()
    done = shell.run("dlq", "replay", "-c", "s.yaml", "--local", "--json")
    assert json.loads(done.stdout)["status"] == "nothing-to-do"


def test_defaults_of_a_kind_are_shown_as_they_stand_in_settings(shell):
    said(shell.run("kinds", "files"), 0, "exclude (default [])", "follow_links (default false)")
    said(shell.run("kinds", "fiels"), 2, "there is no kind 'fiels'; there is: files,")


def test_a_key_that_is_not_set_is_said_before_any_document_is_read(shell, monkeypatch):
    monkeypatch.delenv("NOBODYS_KEY", raising=False)
    embedder = {"kind": "openai", "model": "text-embedding-3-small", "api_key": "${NOBODYS_KEY}"}
    shell.settings(embedder={**embedder, "tokenizer": "estimate"})
    said(shell.ingest(), 2, "not set in the environment", "next: export NOBODYS_KEY=...")
    assert not (shell.folder / "ws").exists()


def test_a_filter_that_no_hit_can_meet_says_how_metadata_is_written(shell):
    shell.ingest()
    search = ["search", "apples", "-c", "s.yaml", "--where"]
    said(shell.run(*search, "lang=en"), 0, "no hits", "a document's own is metadata.lang")
    assert "note" not in shell.run(*search, "metadata.lang=en").output
    assert "note" not in shell.run(*search, "doc_id=none").output


def test_of_several_values_for_one_key_any_is_found(shell):
    shell.ingest()
    wanted = ["--where", "doc_id=a", "--where", "doc_id=c"]
    found = shell.run("search", "apples", "-c", "s.yaml", "--json", *wanted)
    assert sorted(hit["doc_id"] for hit in json.loads(found.stdout)) == ["a", "c"]


def test_a_name_that_ends_with_a_backslash_is_shown_as_it_is(shell):
    shell.rows([{"id": "a\\", "text": "apples"}, {"id": "b\\[red]c", "text": "pears"}])
    shell.ingest()
    said(shell.run("search", "apples", "-c", "s.yaml"), 0, "a\\ characters", "b\\[red]c characters")
