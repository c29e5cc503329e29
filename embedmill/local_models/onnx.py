"""A local model on a CPU through ONNX Runtime, from the ONNX file that its weights come with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from embedmill.embedder import Vectors
from embedmill.embedders.model_files import ModelDescription
from embedmill.errors import PermanentError
from embedmill.local_model import Backend, BatchForm, TokenIds, padded
from embedmill.local_models.encoder_weights import UnsupportedModelError
from embedmill.local_models.model_head import head_of, pool
from embedmill.processors import given_threads

_FILES = ("onnx/model.onnx", "model.onnx")
_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class OnnxModel:
    """A session over ``onnx/model.onnx``, which computes in float32; pooling is done by numpy.

    Args:
        model: what its files say.

    Raises:
        UnsupportedModelError: there is no such file, or it has other inputs or outputs.
    """

    backend: Backend = "onnx"
    # Larger batches leave the processor's cache; one session uses all threads for one batch.
    form = BatchForm(rows=32, tokens=8192)

    def __init__(self, model: ModelDescription) -> None:
        self._steps = head_of(model.modules)
        options = ort.SessionOptions()
        options.intra_op_num_threads = given_threads()
        path = _file_of(model)
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._inputs = [each.name for each in self._session.get_inputs()]
        unknown = set(self._inputs) - set(_INPUTS)
        outputs = [each.name for each in self._session.get_outputs() if len(each.shape) == 3]
        if unknown or not outputs:
            raise UnsupportedModelError(
                f"{path.name} of {model.location.name!r} has inputs {self._inputs} and no output "
                "of tokens' vectors"
            )
        self._tokens = outputs[0]
        self._pad_id = model.pad_id

    def pooled(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:  # noqa: ARG002 (all tokens are pooled)
        """See :class:`~embedmill.local_model.LocalModel`."""
        table = padded(texts, self._pad_id)
        named = dict(zip(_INPUTS, table, strict=True))
        try:
            (found,) = self._session.run(
                [self._tokens], {name: named[name] for name in self._inputs}
            )
        except (RuntimeError, ValueError) as error:
            raise PermanentError(f"the model fails on the text: {error}", code="model") from error
        return pool(self._steps, np.asarray(found, np.float32), table[1])


def _file_of(model: ModelDescription) -> Path:
    found = [path for name in _FILES if (path := model.location.directory / name).is_file()]
    if not found:
        raise UnsupportedModelError(
            f"{model.location.name!r} comes without {_FILES[0]}",
            hint="set embedder.backend to openvino or torch",
        )
    return found[0]
