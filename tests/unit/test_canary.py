"""The canary: a model that changed behind its name is found out before anything is mixed."""

import numpy as np
import pytest

from embedmill.canary import CANARY_TEXTS, CanaryLayer, WatchedEmbedder, cosine
from embedmill.embedder import EmbeddedTexts
from embedmill.embedders.hashing import HashingEmbedder, hashing_recipe
from embedmill.errors import DamagedFileError, ModelDriftError, PermanentError, StopRunError
from embedmill.settings import HashingEmbedderSettings
from embedmill.testing.memory_workspace import MemoryWorkspace

SETTINGS = HashingEmbedderSettings(kind="hashing", dimension=16)


class Turned:
    """Another model behind the same name; counts its calls."""

    def __init__(self, real, angle=0.0, calls=None):
        self._real, self.recipe = real, real.recipe
        self._angle, self.calls = angle, [] if calls is None else calls

    def embed(self, texts, role):
        self.calls.append((role, list(texts)))
        found = self._real.embed(texts, role)
        vectors = found.vectors.astype(np.float64)
        other = np.roll(vectors, 1, axis=1)
        other -= (other * vectors).sum(axis=1, keepdims=True) * vectors
        other /= np.linalg.norm(other, axis=1, keepdims=True)
        turned = np.cos(self._angle) * vectors + np.sin(self._angle) * other
        return EmbeddedTexts(turned.astype(np.float32), found.failures, found.token_count)


def an_embedder(angle=0.0, **settings):
    chosen = SETTINGS.model_copy(update=settings)
    return Turned(HashingEmbedder(chosen, hashing_recipe(chosen, "cosine")), angle)


def watched(embedder, workspace, least=0.999):
    layer = CanaryLayer(workspace, "books")
    settings = SETTINGS.model_dump(mode="json")
    return WatchedEmbedder(embedder, layer, settings, least=least, now=lambda: "now")


def test_nothing_is_asked_of_the_model_before_there_is_a_text():
    embedder = an_embedder()
    watching = watched(embedder, MemoryWorkspace())
    watching.embed([], "document")
    assert all(not texts for _, texts in embedder.calls)


def test_the_canary_is_asked_once_before_the_first_text():
    embedder = an_embedder()
    watching = watched(embedder, MemoryWorkspace())
    watching.embed(["a"], "document")
    watching.embed(["b"], "document")
    canary = ("query", list(CANARY_TEXTS.values()))
    assert embedder.calls == [canary, ("document", ["a"]), ("document", ["b"])]


def test_both_roles_are_watched_where_they_differ():
    embedder = an_embedder(document_prompt="passage: ", query_prompt="query: ")
    watched(embedder, MemoryWorkspace()).embed(["a"], "document")
    assert [role for role, _ in embedder.calls] == ["document", "query", "document"]


@pytest.mark.parametrize(("angle", "drifts"), [(0.0, False), (0.02, False), (0.1, True)])
def test_a_model_may_round_but_not_change(angle, drifts):
    workspace = MemoryWorkspace()
    watched(an_embedder(), workspace).embed(["a"], "document")
    later = an_embedder(angle)
    watching = watched(later, workspace)
    if not drifts:
        watching.embed(["b"], "document")
        return
    with pytest.raises(ModelDriftError, match=f"cosine {np.cos(angle):.3f}") as caught:
        watching.embed(["b"], "document")
    assert "embedmill reembed SETTINGS" in caught.value.hint
    # Not one text of ours went to the wrong model, now or at the next try.
    assert ("document", ["b"]) not in later.calls
    with pytest.raises(ModelDriftError):
        watching.embed(["b"], "document")


def test_a_text_that_the_model_refuses_is_left_out_but_not_all_of_them():
    class Picky(Turned):
        def embed(self, texts, role):
            found = super().embed(texts, role)
            bad = [n for n, text in enumerate(texts) if self.word in text]
            found.vectors[bad] = np.nan
            refused = {n: PermanentError("no", code="no") for n in bad}
            return EmbeddedTexts(found.vectors, refused)

    picky = Picky(an_embedder())
    picky.word = "天気"
    workspace = MemoryWorkspace()
    watched(picky, workspace).embed(["a"], "document")
    canary = CanaryLayer(workspace, "books").read(picky.recipe)
    assert "accents" not in canary.queries
    assert len(canary.queries) == len(CANARY_TEXTS) - 1
    # One that takes it now is compared by the others.
    watched(an_embedder(), workspace).embed(["a"], "document")
    picky.word = ""
    with pytest.raises(StopRunError, match="plain sentences"):
        watched(picky, MemoryWorkspace()).embed(["a"], "document")


def test_another_recipe_has_a_canary_of_its_own():
    workspace = MemoryWorkspace()
    watched(an_embedder(), workspace).embed(["a"], "document")
    watched(an_embedder(dimension=32), workspace).embed(["a"], "document")
    assert sum("/canaries/" in path for path in workspace.files) == 2


def test_of_two_that_begin_at_once_one_stands_and_both_are_held_against_it():
    workspace = MemoryWorkspace()
    first, second = an_embedder(), an_embedder(0.5)
    layer = CanaryLayer(workspace, "books")

    class Late(CanaryLayer):
        """Reads before the other has written."""

        def read(self, recipe):
            watched(first, workspace).prove()
            return

    watching = WatchedEmbedder(
        second, Late(workspace, "books"), {"kind": "hashing"}, least=0.999, now=lambda: "now"
    )
    with pytest.raises(ModelDriftError):
        watching.prove()
    assert layer.read(first.recipe).created == "now"


def test_a_torn_canary_is_said():
    workspace = MemoryWorkspace()
    embedder = an_embedder()
    watched(embedder, workspace).prove()
    [path] = workspace.files
    workspace.files[path] = workspace.files[path][:-9]
    with pytest.raises(DamagedFileError, match="canaries"):
        watched(embedder, workspace).prove()


def test_cosine_of_nothing_is_nan():
    assert np.isnan(cosine(np.zeros(3, np.float32), np.ones(3, np.float32)))


def test_a_run_with_a_changed_model_is_refused_and_changes_nothing(small_index):
    index = small_index(embedder={"kind": "hashing", "dimension": 16})
    index.ingest({"a": "one two", "b": "three four"})
    before, payloads = index.ids(), index.payloads()
    index.wrappers = {"embedder": lambda real: Turned(real, 0.5)}
    with pytest.raises(ModelDriftError, match="makes other vectors"):
        index.ingest({"a": "one two", "b": "five six", "c": "seven"})
    assert (index.ids(), index.payloads()) == (before, payloads)
    # Put back, the run goes on where it was.
    index.wrappers = {}
    report = index.ingest({"a": "one two", "b": "five six", "c": "seven"})
    assert report.status == "succeeded"
    assert index.ids() == index.expected_ids()


def test_a_run_that_embeds_nothing_asks_nothing_of_the_model(small_index):
    index = small_index()
    calls = []
    index.wrappers = {"embedder": lambda real: Turned(real, 0.0, calls)}
    index.ingest({"a": "one two"})
    assert calls
    calls.clear()
    index.ingest({"a": "one two"})
    assert calls == []


def test_a_vector_without_a_direction_has_moved():
    class Zeros(Turned):
        def embed(self, texts, role):
            found = super().embed(texts, role)
            return EmbeddedTexts(np.zeros_like(found.vectors))

    workspace = MemoryWorkspace()
    watched(an_embedder(), workspace).embed(["a"], "document")
    real = an_embedder()
    with pytest.raises(ModelDriftError, match="nan"):
        watched(Zeros(real._real), workspace).embed(["b"], "document")
