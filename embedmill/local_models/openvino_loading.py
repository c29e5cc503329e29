"""From the files of a model to one that OpenVINO computes, checked once on this machine."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import openvino as ov

from embedmill.embedders.model_files import ModelDescription, model_revision
from embedmill.embedding_layout import best_streams
from embedmill.local_models.encoder_graph import encoder_graph
from embedmill.local_models.encoder_weights import EncoderWeights, UnsupportedModelError
from embedmill.local_models.graph_file import read_graph, save_graph
from embedmill.local_models.model_head import head_of
from embedmill.local_models.openvino import OpenVinoModel
from embedmill.local_models.self_check import check_once
from embedmill.local_models.traced_graph import traced_graph
from embedmill.made_once import made_once
from embedmill.processors import given_threads
from embedmill.recipe import EmbeddingRecipe, fingerprint_of

log = logging.getLogger(__name__)
# Raised when the graphs change that are made from the same weights.
_GRAPH_VERSION = 1
# Beside an int8 graph: what calibrating it has shown.
_COST = "cost.txt"


def load_openvino(
    model: ModelDescription, recipe: EmbeddingRecipe, streams: int | None = None
) -> OpenVinoModel:
    """Load a model; the first time on a machine it is converted where needed, and checked.

    Args:
        model: what its files say.
        recipe: how to compute.
        streams: batches beside each other; without it what was measured to be fastest on this
            machine, else a stream of one thread for every thread that this process was given: two
            streams of one thread each are 4 to 6 % faster than one of two.

    Raises:
        UnsupportedModelError: OpenVINO cannot compute it, or computes something else.
    """
    threads = given_threads()
    measured = best_streams(recipe.revision, "openvino", recipe.dtype, threads)
    compiled = OpenVinoModel(
        _int8_graph(model) if recipe.dtype == "int8" else _graph(model),
        recipe.dtype,
        pad_id=model.pad_id,
        vocabulary=model.vocabulary,
        threads=threads,
        streams=streams or measured or threads,
    )
    check_once(compiled, model, recipe, ov.get_version())
    return compiled


def _int8_graph(model: ModelDescription) -> ov.Model:
    from embedmill.local_models.int8_graph import CALIBRATION, int8_graph

    def make(folder: Path) -> None:
        log.warning("calibrating %s for int8, once; this takes a minute", model.location.name)
        graph, cost = int8_graph(_graph(model), model)
        save_graph(graph, folder)
        (folder / _COST).write_text(cost)
        log.warning("%s", cost)

    folder = _made_folder("int8", model, make, CALIBRATION)
    if (folder / _COST).is_file():
        log.info("%s", (folder / _COST).read_text())
    return read_graph(folder)


def _graph(model: ModelDescription) -> ov.Model:
    steps = head_of(model.modules)
    try:
        return encoder_graph(EncoderWeights(model.location.directory), steps)
    except UnsupportedModelError as error:
        log.info("%s is converted by torch: %s", model.location.name, error)

    def make(folder: Path) -> None:
        log.warning("converting %s for OpenVINO, once", model.location.name)
        save_graph(traced_graph(model.location, steps), folder)

    return read_graph(_made_folder("float", model, make))


def _made_folder(
    kind: str, model: ModelDescription, make: Callable[[Path], None], *versions: int
) -> Path:
    facts = [model_revision(model.location), ov.get_version(), _GRAPH_VERSION, *versions]
    return made_once(f"openvino-{kind}-{fingerprint_of(facts)}", make)
