"""A local model on a CPU through OpenVINO, driven directly."""

from __future__ import annotations

from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np
import openvino as ov

from embedmill.embedder import Vectors
from embedmill.errors import PermanentError
from embedmill.local_model import Backend, BatchForm, TokenIds, padded, refuse_unknown_tokens
from embedmill.processors import cpu_flags, multiplies_bfloat16

# Small batches stay in the processor's cache: in bfloat16 with two streams, 8 rows are 10 % faster
# than 32.
_ROWS, _TOKENS = 8, 2048
# As fast in batches of two long texts.
_SMALLEST = 512


class OpenVinoModel:
    """A compiled graph with inputs ``ids`` and ``mask``.

    Args:
        graph: as ``encoder_graph`` makes it.
        dtype: of the recipe; what the processor has not natively is computed in float32.
        pad_id: what stands after the end of a text.
        vocabulary: ids are below it.
        threads: of all streams together.
        streams: batches that are computed beside each other.
    """

    backend: Backend = "openvino"

    def __init__(
        self,
        graph: ov.Model,
        dtype: str,
        *,
        pad_id: int,
        vocabulary: int,
        threads: int,
        streams: int,
    ) -> None:
        in_bfloat16 = dtype == "bfloat16" and multiplies_bfloat16(cpu_flags())
        options = {
            "INFERENCE_PRECISION_HINT": "bf16" if in_bfloat16 else "f32",
            "NUM_STREAMS": streams,
            "INFERENCE_NUM_THREADS": max(threads, streams),
            # Every process pins its threads to the same first cores: two processes of one thread
            # each then do 72 chunks a second instead of 140.
            "ENABLE_CPU_PINNING": False,
        }
        # OpenVINO's own cache of compiled models would save 0.13 of 0.28 s, for 87 MB of disk.
        compiled = ov.Core().compile_model(graph, "CPU", options)
        self._requests: SimpleQueue[ov.InferRequest] = SimpleQueue()
        for _ in range(streams):
            self._requests.put(compiled.create_infer_request())
        self._pad_id = pad_id
        self._vocabulary = vocabulary
        self.form = BatchForm(_ROWS, _TOKENS, streams, _SMALLEST if streams > 1 else 0)

    def pooled(self, texts: Sequence[TokenIds], prompt_tokens: int) -> Vectors:  # noqa: ARG002 (the graph pools all tokens)
        """See :class:`~embedmill.local_model.LocalModel`."""
        table = padded(texts, self._pad_id)
        # OpenVINO would take a row of zeros for it.
        refuse_unknown_tokens(table, self._vocabulary)
        ids, mask, _ = table
        request = self._requests.get()
        try:
            request.infer([ids, mask], share_inputs=True)
            found: Vectors = np.array(request.get_output_tensor(0).data, np.float32)
        except RuntimeError as error:
            raise PermanentError(f"the model fails on the text: {error}", code="model") from error
        finally:
            self._requests.put(request)
        return found
