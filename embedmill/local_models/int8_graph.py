"""Graphs for OpenVINO whose multiplications are done with 8 bits, calibrated on fixed texts."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import numpy as np
import openvino as ov

from embedmill.embedder import Vectors
from embedmill.embedders.model_files import ModelDescription
from embedmill.embedders.model_tokenizer import load_tokenizer
from embedmill.extras import extra
from embedmill.local_model import Integers, padded

# Changes with the texts or the way of quantising: other int8 vectors are another recipe.
CALIBRATION = 1
# Half of the passages calibrate, the others tell what it cost.
_PASSAGES, _ROWS, _NEAREST = 128, 4, 5
_SENTENCES = (
    "Rivers carry sand to the sea, where it settles in fans that grow for thousands of years.",
    "To restart the service, run the command below as root and wait until the log says ready.",
    "The court held that the notice was late and that the claim had therefore lapsed.",
    "In mice that lacked the gene, the liver took up less glucose after a meal than in others.",
    "def total(rows): return sum(row.price * row.count for row in rows if not row.cancelled)",
    "Beat the eggs with the sugar until pale, fold in the flour, and bake for forty minutes.",
    "The quarterly report shows revenue of 4.2 million, down 3.1 % on the year before.",
    "A mutex protects the queue; whoever holds it must not wait for the network meanwhile.",
    "She tuned the violin, nodded to the pianist, and began the slow movement without a score.",
    "The treaty of 1648 ended the war and moved the border of the province to the river.",
    "Patients who were given the drug had fewer attacks, but slept worse in the first week.",
    "SELECT name, count(*) FROM orders WHERE paid = false GROUP BY name ORDER BY 2 DESC;",
    "The valve opens at 80 degrees and lets the coolant flow through the radiator.",
    "When the key is rotated, tokens that were signed before stay valid for one hour.",
    "Low clouds over the coast will clear by noon, with light wind from the west.",
    "If the parcel has not arrived within ten days, write to us and name the order number.",
    "The theorem holds for every compact set, since each open cover has a finite part.",
    "Voters in the north preferred the bridge, those in the south the ferry.",
    "GET /v2/items?limit=50 returns 404 when the collection does not exist.",
    "The roof is of slate, the walls are of brick, and the cellar floods in wet winters.",
    "A loan with a variable rate follows the rate of the central bank with a month's delay.",
    "Bees find the hive again by the sun, by landmarks, and at the end by its smell.",
    "The parser reads one token ahead and never goes back, so its memory does not grow.",
    "He scored in the last minute, after a corner that the keeper had misjudged.",
    "Wash the wool by hand in cold water and dry it flat, away from the stove.",
    "Each replica writes the entry to its own log before it answers the leader.",
    "The museum shows 300 prints, most of them from the years between the wars.",
    "An employee may end the contract with four weeks' notice to the end of a month.",
    "Error: cannot open /var/lib/data/index.bin: no space left on device (os error 28)",
    "The telescope measures how the star dims by one percent while the planet passes.",
    "Children under six travel free; dogs need a ticket at half the price.",
)


def int8_graph(graph: ov.Model, model: ModelDescription) -> tuple[ov.Model, str]:
    """Quantise a graph.

    Returns:
        The graph, and one line about what that costs.

    Raises:
        MissingExtraError: nncf is not installed.
    """
    # It would tell its makers over the network that it is used.
    os.environ.setdefault("NNCF_CI", "1")
    with extra("embedder.dtype int8", "pip install 'embedmill[int8]'", ("nncf",)):
        import nncf

    logging.getLogger("nncf").setLevel(logging.ERROR)
    batches = list(_batches(model))
    calibrating, others = batches[::2], batches[1::2]
    quantised: ov.Model = nncf.quantize(
        graph,
        nncf.Dataset([(ids, mask) for ids, mask in calibrating]),
        model_type=nncf.ModelType.TRANSFORMER,
        subset_size=len(calibrating),
    )
    exact, fast = (_vectors(each, others) for each in (graph, quantised))
    cosines = np.sum(exact * fast, axis=1)
    cost = (
        f"int8 for {model.location.name}: cosine to float32 {cosines.mean():.4f} on average, "
        f"{cosines.min():.4f} at least; of the {_NEAREST} nearest texts "
        f"{_kept(exact, fast):.0%} stay the same"
    )
    return quantised, cost


def _batches(model: ModelDescription) -> Iterator[tuple[Integers, Integers]]:
    """Passages as long as chunks are, and as short as questions are."""
    tokenizer = load_tokenizer(model.location.directory)
    tokenizer.enable_truncation(model.window)
    passages = sorted(map(_passage, range(_PASSAGES)), key=len)
    for start in range(0, _PASSAGES, _ROWS):
        encodings = tokenizer.encode_batch(passages[start : start + _ROWS])
        ids, mask, _ = padded(encodings, model.pad_id)
        yield ids, mask


def _passage(number: int) -> str:
    """One to twelve sentences, unlike ones beside each other; every third passage a few words."""
    count = len(_SENTENCES)
    chosen = [_SENTENCES[(7 * number + 11 * step) % count] for step in range(1 + number % 12)]
    if number % 3 == 0:
        return " ".join(chosen[0].split()[: 1 + number // 3 % 8])
    return " ".join(chosen)


def _vectors(graph: ov.Model, batches: list[tuple[Integers, Integers]]) -> Vectors:
    compiled = ov.Core().compile_model(graph, "CPU")
    found = np.concatenate([np.array(compiled(list(each))[0]) for each in batches])
    unit: Vectors = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def _kept(exact: Vectors, fast: Vectors) -> float:
    """Of the nearest texts of each by float32, how many are among the nearest by int8."""
    both = []
    for vectors in (exact, fast):
        scores = vectors @ vectors.T
        np.fill_diagonal(scores, -1)
        both.append(np.argsort(-scores, axis=1)[:, :_NEAREST])
    rows = zip(*both, strict=True)
    return float(np.mean([len(set(left) & set(right)) / _NEAREST for left, right in rows]))
