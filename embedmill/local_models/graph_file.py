"""Graphs for OpenVINO in a folder."""

from __future__ import annotations

from pathlib import Path

import openvino as ov

_NAME = "model.xml"


def save_graph(graph: ov.Model, folder: Path) -> None:
    """Write the graph and, beside it, its weights; no number is rounded."""
    ov.save_model(graph, folder / _NAME, compress_to_fp16=False)


def read_graph(folder: Path) -> ov.Model:
    """Read what :func:`save_graph` wrote; the weights are mapped, not copied."""
    return ov.Core().read_model(folder / _NAME)
