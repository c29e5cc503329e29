"""How the product is compared with other frameworks: corpus, verdict, picture."""

import argparse
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import orjson
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from benchmarks.machine import Measured
from benchmarks.peers.contenders import CONTENDERS, Stored
from benchmarks.peers.corpus import make_corpus
from benchmarks.peers.goals import judge
from benchmarks.peers.plot import comparison_svg
from benchmarks.peers.results import Result
from benchmarks.peers.table import show_table

PEERS = Path(__file__).parents[2] / "scripts" / "benchmarks" / "peers"


def run(seconds, peak=100):
    return Measured({}, seconds, peak, (), seconds, 0.0)


def result(name, cold, *, rerun=1.0, peak=100, cosine=1.0):
    contender = next(each for each in CONTENDERS if each.name == name)
    found = Result(contender, cold=[run(cold, peak)], cosine=cosine)
    if contender.remembers:
        found.unchanged, found.changed = [run(rerun)], [run(rerun)]
    found.stored = Stored(1, ["text"], np.ones((1, 4), np.float32))
    return found


def compared(**ours):
    mine = {"cold": 10.0, "rerun": 0.5, "peak": 90, "cosine": 1.0} | ours
    cold = mine.pop("cold")
    theirs = [result("LlamaIndex", 60.0), result("Ray Data", 90.0)]
    return [result("embedmill", cold, **mine), *theirs, result("LlamaIndex+OpenVINO", 20.0)]


def test_all_goals_are_kept():
    assert judge(compared(), 5.0) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cold": 12.1}, "cold, the fastest default: 4.96 times as fast"),
        ({"rerun": 1.1}, "unchanged: 0.91 times as fast"),
        ({"peak": 101}, "peak memory: 1.01 of the median of theirs"),
        ({"cosine": 0.9998}, "least cosine to float32: 0.99980"),
    ],
)
def test_a_goal_that_is_missed_is_said(change, said, capsys):
    assert judge(compared(**change), 5.0) == 1
    printed = capsys.readouterr().out
    assert said in printed
    assert "NOT KEPT" in printed


def test_the_expert_must_be_beaten_too(capsys):
    assert judge([*compared()[:-1], result("LlamaIndex+OpenVINO", 9.0)], 5.0) == 1
    assert "the expert's: 0.90 times as fast" in capsys.readouterr().out


def test_who_keeps_no_state_and_who_computes_other_vectors_is_marked(capsys):
    show_table([*compared(), result("Haystack", 50.0, cosine=0.99)])
    rows = capsys.readouterr().out.splitlines()
    assert "keeps no state: as cold" in next(row for row in rows if "Ray Data" in row)
    assert "0.99000 (other)" in next(row for row in rows if "Haystack" in row)


def test_a_hundredth_of_the_documents_is_edited_in_the_middle(tmp_path):
    rows = [
        {"doc_id": f"d{at}", "title": "A title", "text": "some words " * 9} for at in range(300)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    options = argparse.Namespace(
        corpus=path, id_column="doc_id", text_columns="title,text", documents=250
    )
    corpus = make_corpus(options, tmp_path)
    first, edited = (
        [orjson.loads(line) for line in file.read_bytes().splitlines()]
        for file in (corpus.first, corpus.edited)
    )
    assert (corpus.documents, corpus.edits, len(first)) == (250, 2, 250)
    differing = [(a["text"], b["text"]) for a, b in zip(first, edited, strict=True) if a != b]
    assert len(differing) == 2
    assert all(after.replace(" reworded", "") == before for before, after in differing)


def test_the_picture_is_well_formed_and_names_everybody(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(orjson.dumps({"id": "a", "text": "b"}))
    options = argparse.Namespace(corpus=path, id_column="id", text_columns="text", documents=None)
    svg = comparison_svg(compared(), make_corpus(options, tmp_path))
    ElementTree.fromstring(svg)
    assert all(each.contender.name in svg for each in compared())


@pytest.mark.parametrize(
    "contender", [each for each in CONTENDERS if each.environment], ids=lambda each: each.name
)
def test_every_framework_has_a_script_and_an_environment_of_exact_pins(contender):
    assert (PEERS / contender.script).is_file()
    pins = (PEERS / f"{contender.environment}.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower() for line in pins if not line.startswith("#")}
    assert all("==" in line for line in pins if not line.startswith("#"))
    assert {"torch", "sentence-transformers", "qdrant-client"} <= pinned
    assert not any(name.startswith("nvidia") for name in pinned)
