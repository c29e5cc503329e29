"""Graphs for OpenVINO of transformers that are not built node by node: converted from torch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import openvino as ov

from embedmill.embedders.model_location import INSTALL_LOCAL, ModelLocation
from embedmill.local_models.encoder_graph import head
from embedmill.local_models.encoder_weights import UnsupportedModelError
from embedmill.local_models.model_head import Step


def traced_graph(location: ModelLocation, steps: Sequence[Step]) -> ov.Model:
    """Convert a model's transformer and put the modules that follow behind it.

    Takes seconds and, for a moment, several times the memory of the weights.

    Args:
        location: of the model.
        steps: after the transformer.

    Raises:
        UnsupportedModelError: OpenVINO cannot convert it, or torch is not installed.
    """
    try:
        from embedmill.local_models.torch_modules import load_modules
    except ModuleNotFoundError as error:
        raise UnsupportedModelError(
            f"{location.name!r} is converted for OpenVINO by torch, once: {error}",
            hint=INSTALL_LOCAL,
        ) from error
    import torch

    model = load_modules(location, torch.device("cpu"), torch.float32)

    class Transformer(torch.nn.Module):
        """Takes ids and mask alone, returns the vectors of the tokens."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = model[0]

        def forward(self, ids: Any, mask: Any) -> Any:  # noqa: ANN401 (tensors)
            return self.inner({"input_ids": ids, "attention_mask": mask})["token_embeddings"]

    # Of two lengths, so that nothing of the trace is for texts without padding.
    ids = torch.ones((2, 9), dtype=torch.int64)
    mask = torch.ones((2, 9), dtype=torch.int64)
    mask[1, 5:] = 0
    try:
        with torch.inference_mode(), warnings.catch_warnings():
            # That a trace may not hold for other texts; the self-check tells.
            warnings.simplefilter("ignore")
            traced = _converted(Transformer(), (ids, mask))
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UnsupportedModelError(
            f"OpenVINO does not convert {location.name!r}: {reason}"
        ) from error
    return _with_head(traced, steps)


def _converted(module: Any, example: tuple[Any, ...]) -> ov.Model:  # noqa: ANN401 (of torch)
    """What ``openvino.convert_model`` does, which also tells its makers over the network."""
    from openvino.frontend import FrontEndManager
    from openvino.frontend.pytorch.ts_decoder import TorchScriptPythonDecoder

    frontend = FrontEndManager().load_by_framework("pytorch")
    # Has to outlive the conversion, which does not keep it.
    decoder = TorchScriptPythonDecoder(module, example_input=example)
    return frontend.convert(frontend.load(decoder))


def _with_head(traced: ov.Model, steps: Sequence[Step]) -> ov.Model:
    ids, mask = traced.get_parameters()
    tokens = traced.get_results()[0].input_value(0)
    for parameter, name in ((ids, "ids"), (mask, "mask")):
        parameter.set_friendly_name(name)
        parameter.set_partial_shape(ov.PartialShape([-1, -1]))
    graph = ov.Model([head(steps, tokens, mask)], [ids, mask], "embedder")
    graph.validate_nodes_and_infer_types()
    return graph
