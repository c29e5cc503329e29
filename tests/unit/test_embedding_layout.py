"""How cores are divided by what was measured."""

import pytest

from embedmill import embedding_layout
from embedmill.embedding_layout import (
    EmbeddingLayout,
    MeasuredLayout,
    best_layout,
    best_streams,
    keep_layouts,
)

REVISION = "weights:abc"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EMBEDMILL_CACHE", str(tmp_path))


def measured(processes, threads, streams, rate, backend="openvino", dtype="bfloat16"):
    layout = EmbeddingLayout(processes, threads, streams)
    return MeasuredLayout(backend, dtype, layout, rate)


def test_without_a_measurement_there_is_no_choice():
    assert best_layout(REVISION, "openvino", "bfloat16") is None
    assert best_streams(REVISION, "openvino", "bfloat16", 2) is None


def test_the_fastest_is_chosen_for_its_backend_dtype_and_weights():
    keep_layouts(REVISION, [measured(1, 4, 4, 100.0), measured(4, 1, 1, 150.0)])
    assert best_layout(REVISION, "openvino", "bfloat16") == EmbeddingLayout(4, 1, 1)
    assert best_layout(REVISION, "openvino", "float32") is None
    assert best_layout(REVISION, "torch", "bfloat16") is None
    assert best_layout("weights:other", "openvino", "bfloat16") is None


def test_of_what_is_as_fast_the_fewest_processes_are_chosen():
    keep_layouts(
        REVISION,
        [measured(4, 1, 1, 100.0), measured(1, 4, 2, 97.5), measured(1, 4, 4, 98.0)],
    )
    assert best_layout(REVISION, "openvino", "bfloat16") == EmbeddingLayout(1, 4, 4)


def test_streams_are_those_that_were_fastest_with_as_many_threads():
    keep_layouts(
        REVISION,
        [measured(1, 4, 4, 90.0), measured(1, 4, 2, 100.0), measured(2, 2, 2, 200.0)],
    )
    assert best_streams(REVISION, "openvino", "bfloat16", 4) == 2
    assert best_streams(REVISION, "openvino", "bfloat16", 3) is None


def test_a_new_measurement_replaces_the_old_one():
    keep_layouts(REVISION, [measured(1, 2, 2, 100.0)])
    path = keep_layouts(REVISION, [measured(2, 1, 1, 50.0)])
    assert best_layout(REVISION, "openvino", "bfloat16") == EmbeddingLayout(2, 1, 1)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_another_number_of_cores_is_another_machine(monkeypatch):
    keep_layouts(REVISION, [measured(1, 2, 2, 100.0)])
    monkeypatch.setattr(embedding_layout, "usable_cores", lambda: 64)
    assert best_layout(REVISION, "openvino", "bfloat16") is None


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'[{"backend": "torch"}]'])
def test_a_damaged_file_is_said_and_left_out(content, caplog):
    path = keep_layouts(REVISION, [measured(1, 2, 2, 100.0)])
    path.write_bytes(content)
    assert best_layout(REVISION, "openvino", "bfloat16") is None
    assert ("embedmill doctor --bench" in caplog.text) == (content != b"{}")
