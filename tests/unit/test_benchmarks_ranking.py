"""How the retrieval benchmark scores a ranking: as trec_eval does."""

import math
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from benchmarks.figures import spread
from benchmarks.memory import write_corpus

from embedmill.errors import SettingsError
from embedmill.judgements import read_judgements, read_queries
from embedmill.ranking import distinct, ndcg, recall


def test_the_ideal_ranking_scores_one():
    assert ndcg(["a", "b", "c"], {"a": 2, "b": 1}, 10) == 1.0


def test_gains_are_the_grades_and_later_places_count_less():
    grades = {"a": 3, "b": 2, "c": 1}
    found = 2 / math.log2(2) + 3 / math.log2(4)
    ideal = 3 / math.log2(2) + 2 / math.log2(3) + 1 / math.log2(4)
    assert ndcg(["b", "x", "a"], grades, 10) == pytest.approx(found / ideal)


def test_what_is_below_the_cut_gains_nothing_and_the_ideal_is_cut_too():
    grades = {"a": 1, "b": 1, "c": 1}
    assert ndcg(["x", "x2", "a"], grades, 2) == 0.0
    assert ndcg(["a", "b"], grades, 2) == 1.0


def test_grades_below_one_gain_nothing():
    assert ndcg(["a", "b"], {"a": -1, "b": 1}, 10) == pytest.approx(1 / math.log2(3))
    assert ndcg(["a"], {"a": 0}, 10) == 0.0
    assert ndcg([], {"a": 1}, 10) == 0.0


def test_recall_counts_the_relevant_among_the_first():
    grades = {"a": 1, "b": 2, "c": 0}
    assert recall(["c", "a", "x", "b"], grades, 3) == 0.5
    assert recall(["c", "a", "x", "b"], grades, 4) == 1.0
    assert recall(["a"], {"a": 0}, 4) == 0.0


def test_a_document_stands_where_its_best_chunk_stands():
    assert distinct(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


def test_judgements_may_have_a_line_of_names_and_need_something_relevant(tmp_path):
    file = tmp_path / "qrels.tsv"
    file.write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t0\n2\tc\t0\n")
    assert read_judgements(file) == {"1": {"a": 1, "b": 0}}


def test_queries_are_known_by_either_name(tmp_path):
    file = tmp_path / "queries.jsonl"
    file.write_text('{"_id": "1", "text": "one"}\n\n{"query_id": 2, "text": "two"}\n')
    assert read_queries(file) == {"1": "one", "2": "two"}


@pytest.mark.parametrize("line", ["1 0 a 1", "1\ta\t0.5", "1\ta", "1\ta\t1\t2"])
@pytest.mark.parametrize("above", ["", "q\td\ts\n\n"])
def test_a_line_that_is_no_judgement_is_told_wherever_it_stands(tmp_path, line, above):
    file = tmp_path / "qrels.tsv"
    file.write_text(f"{above}{line}\n2\tb\t1\n")
    with pytest.raises(SettingsError, match=f"qrels.tsv:{1 + above.count(chr(10))}: a line is"):
        read_judgements(file)


def test_files_of_windows_are_read_whole(tmp_path):
    qrels, queries = tmp_path / "qrels.tsv", tmp_path / "queries.jsonl"
    qrels.write_bytes("\ufeff1\ta\u2028b\t1\r\n2\tb\t1\r\n".encode())
    queries.write_bytes('\ufeff{"_id": "1", "text": "one\u2028two"}\r\n'.encode())
    assert read_judgements(qrels) == {"1": {"a\u2028b": 1}, "2": {"b": 1}}
    assert read_queries(queries) == {"1": "one\u2028two"}


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "null",
        '{"text": "x"}',
        '{"_id": null, "text": "x"}',
        '{"_id": true, "text": "x"}',
        '{"_id": "2", "text": null}',
        '{"_id": "2", "text": " "}',
        '{"_id": "2"',
    ],
)
def test_a_line_that_is_no_query_is_told(tmp_path, line):
    file = tmp_path / "queries.jsonl"
    file.write_text(f'{{"_id": "1", "text": "one"}}\n\n{line}\n')
    with pytest.raises(SettingsError, match=r"queries.jsonl:3: a line is a JSON object"):
        read_queries(file)


def test_a_query_that_stands_twice_is_told(tmp_path):
    file = tmp_path / "queries.jsonl"
    file.write_text('{"_id": "1", "text": "one"}\n{"_id": 1, "text": "two"}\n')
    with pytest.raises(SettingsError, match=r"queries.jsonl:2: an earlier line has the query '1'"):
        read_queries(file)


def test_the_corpus_for_memory_is_the_same_every_time(tmp_path):
    for name in ("a", "b"):
        write_corpus(tmp_path / name, 30)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    lines = (tmp_path / "a").read_text().splitlines()
    assert len(set(lines)) == 30


def test_a_spread_is_shown_where_there_is_one():
    assert spread([3.0, 1.0, 2.0], "s", 1) == "2.0 (1.0 to 3.0) s"
    assert spread([1.0]) == "1.00"
