"""The canary: vectors of a few fixed texts, by which a model that changed is noticed.

The first run that embeds under a recipe keeps what the model makes of these texts; every later run
makes them again before its first own text. A provider that serves another model under the same name
is found out before anything is mixed. The same vectors show a search service whether it embeds
queries as the index expects.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np

from embedmill.closing import let_go
from embedmill.embedder import EmbeddedTexts, Embedder, Role, Vectors
from embedmill.errors import DamagedFileError, ModelDriftError, StopRunError
from embedmill.recipe import EmbeddingRecipe
from embedmill.sealed_json import sealed, unsealed
from embedmill.workspace import Workspace, create_once, require

FORMAT = "1"
_LONG = " ".join(
    f"Station {number} reports wind from the {side}, a falling barometer and a sea that runs "
    f"{number + 1} feet high."
    for number, side in enumerate(("north", "east", "south", "west") * 6)
)
# Each shows another habit of whoever embeds them; names are for messages, and never change.
CANARY_TEXTS: Mapping[str, str] = {
    "plain": "how do bees tell each other where the flowers are",
    "sentence": "The court held that silence alone is not acceptance of an offer.",
    "capitals": "WHO Guidelines for MRSA in ICUs, Turkey 2019",
    "accents": "Où naît Ångström? Straße, žluťoučký kůň, 東京の天気",
    "white space": "  two words,\n\tthen   a\r\nnew line ",
    "long": _LONG,
}


@dataclass(frozen=True, slots=True)
class Canary:
    """What a model made of the fixed texts.

    Attributes:
        recipe: of the vectors.
        embedder: settings of the embedder that made them, as JSON; keys by name only.
        queries: vectors of the texts as queries, by name; a text that failed is left out.
        documents: vectors of the texts as documents, where that is something else.
        created: UTC, ISO 8601.
    """

    recipe: EmbeddingRecipe
    embedder: Mapping[str, Any]
    queries: Mapping[str, Vectors]
    documents: Mapping[str, Vectors]
    created: str

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {
            "format": FORMAT,
            "recipe": asdict(self.recipe),
            "embedder": dict(self.embedder),
            "texts": dict(CANARY_TEXTS),
            "queries": {name: vector.tolist() for name, vector in self.queries.items()},
            "documents": {name: vector.tolist() for name, vector in self.documents.items()},
            "created": self.created,
        }

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_json` wrote."""
        return cls(
            recipe=EmbeddingRecipe.from_json(record["recipe"]),
            embedder=record["embedder"],
            queries=_arrays(record["queries"]),
            documents=_arrays(record["documents"]),
            created=record["created"],
        )


def _arrays(record: Mapping[str, Sequence[float]]) -> dict[str, Vectors]:
    # In the order of the texts, whatever the file's is.
    names = [name for name in CANARY_TEXTS if name in record]
    return {name: np.array(record[name], np.float32) for name in names}


class CanaryLayer:
    """The canaries of one index: one for each embedding recipe that it ever had."""

    def __init__(self, workspace: Workspace, index: str) -> None:
        self._workspace = workspace
        self._folder = f"indexes/{index}/canaries"

    def read(self, recipe: EmbeddingRecipe) -> Canary | None:
        """The canary of a recipe, or None while nothing was embedded under it.

        Raises:
            DamagedFileError: torn, or of another recipe.
        """
        path = self._path(recipe)
        data = self._workspace.read(path)
        return None if data is None else _parsed(data, self._place(path), recipe)

    def keep(self, canary: Canary) -> Canary:
        """Keep a canary, unless another process was first.

        Returns:
            The one that stands.
        """
        path = self._path(canary.recipe)
        if create_once(self._workspace, path, sealed(canary.to_json())):
            return canary
        return _parsed(require(self._workspace, path), self._place(path), canary.recipe)

    def _place(self, path: str) -> str:
        return f"{self._workspace.url}/{path}"

    def _path(self, recipe: EmbeddingRecipe) -> str:
        return f"{self._folder}/{recipe.id}.json"


def _parsed(data: bytes, path: str, recipe: EmbeddingRecipe) -> Canary:
    canary = Canary.from_json(unsealed(data, path, remedy=_remedy(path)))
    if canary.recipe != recipe:
        raise DamagedFileError(
            f"{path} is of another recipe than its name says", hint=_remedy(path)
        )
    return canary


def _remedy(path: str) -> str:
    return (
        f"restore it from a copy of the workspace; or, where the model is surely the same as ever, "
        f"delete {path}: the next run keeps another"
    )


def embedded_canary(embedder: Embedder, settings: Mapping[str, Any], now: str) -> Canary:
    """What a model makes of the fixed texts now.

    Args:
        embedder: holds the model.
        settings: of the embedder, as JSON.
        now: UTC, ISO 8601.

    Raises:
        StopRunError: it embeds none of them.
        TransientError: the provider could not be asked.
    """
    recipe = embedder.recipe
    documents: Mapping[str, Vectors] = {}
    as_document = recipe.document_prompt, recipe.input_type("document")
    if as_document != (recipe.query_prompt, recipe.input_type("query")):
        documents = _embedded(embedder, "document")
    return Canary(recipe, settings, _embedded(embedder, "query"), documents, now)


def _embedded(embedder: Embedder, role: Role) -> dict[str, Vectors]:
    embedded = embedder.embed(list(CANARY_TEXTS.values()), role)
    if len(embedded.failures) == len(CANARY_TEXTS):
        raise StopRunError(
            f"the model does not embed plain sentences: {next(iter(embedded.failures.values()))}",
            code="canary",
            hint="check the embedder's settings",
        )
    return {
        name: embedded.vectors[row]
        for row, name in enumerate(CANARY_TEXTS)
        if row not in embedded.failures
    }


def cosine(one: Vectors, other: Vectors) -> float:
    """Cosine of two vectors, in float64; NaN where one of them is zero."""
    a, b = one.astype(np.float64), other.astype(np.float64)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    return float(a @ b) / norm if norm else float("nan")


def compared(then: Canary, now: Canary) -> dict[str, float]:
    """Cosine between then and now, by name of the text; the worse of both roles.

    Texts that failed at one of the two times are left out.
    """
    found: dict[str, float] = {}
    for before, after in ((then.queries, now.queries), (then.documents, now.documents)):
        for name in before.keys() & after.keys():
            # numpy's minimum: a NaN stays one, and is below any threshold.
            alike = cosine(before[name], after[name])
            found[name] = float(np.minimum(found.get(name, 1.0), alike))
    return found


def refuse_drift(then: Canary, now: Canary, least: float) -> None:
    """Refuse a model that is not the one that the recipe had.

    Raises:
        ModelDriftError: a vector has moved by more than rounding.
    """
    cosines = compared(then, now)
    moved = {name: value for name, value in cosines.items() if not value >= least}
    if not moved:
        return
    worst = min(moved, key=lambda name: moved[name])
    recipe = then.recipe
    raise ModelDriftError(
        f"the model {recipe.model!r} ({recipe.provider}, {recipe.revision}) makes other vectors "
        f"than on {then.created}, when this index began to use it: {len(moved)} of "
        f"{len(cosines)} fixed texts have moved, {worst!r} to cosine {moved[worst]:.4f} (at least "
        f"{least} is asked for). Nothing was embedded, nothing is mixed",
        hint=_what_next(then.embedder),
    )


def _what_next(embedder: Mapping[str, Any]) -> str:
    away = "if it was an accident (another server, another library), put it back and run again"
    if "revision" in embedder and embedder["kind"] != "sentence_transformers":
        return (
            f"{away}; if the model is a new one, say so (embedder.revision: a new word) and build "
            "a new version with: embedmill reembed SETTINGS"
        )
    return (
        f"{away}; what it may move by is gates.min_canary_cosine; to go on with the model as it is "
        "now, build a new version under another recipe (model, revision) with: embedmill reembed "
        "SETTINGS"
    )


class WatchedEmbedder:
    """An embedder that proves before its first text that its model is the one it was.

    Nothing is asked of the model before there is something to embed.
    """

    def __init__(
        self,
        real: Embedder,
        layer: CanaryLayer,
        settings: Mapping[str, Any],
        *,
        least: float,
        now: Callable[[], str],
        on_proved: Callable[[Canary], None] = lambda _: None,
    ) -> None:
        """Watch over an embedder.

        Args:
            real: holds the model.
            layer: keeps the canaries of the index.
            settings: of the embedder, as JSON.
            least: cosine that counts as the same.
            now: UTC, ISO 8601.
            on_proved: told the canary that stands, once the model is known to be its own.
        """
        self.recipe = real.recipe
        self._real = real
        self._layer = layer
        self._settings = settings
        self._least = least
        self._now = now
        self._on_proved = on_proved
        self._proved = False
        self._proving = threading.Lock()

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed ``texts``; see :class:`~embedmill.embedder.Embedder`.

        Raises:
            ModelDriftError: the model has changed; none of the texts was embedded.
        """
        if texts:
            self.prove()
        return self._real.embed(texts, role)

    def prove(self) -> None:
        """Compare with the canary of the recipe, or keep the first one; once for all threads.

        Raises:
            ModelDriftError: the model has changed.
        """
        with self._proving:
            if self._proved:
                return
            found = embedded_canary(self._real, self._settings, self._now())
            standing = self._layer.read(self.recipe) or self._layer.keep(found)
            refuse_drift(standing, found, self._least)
            self._on_proved(standing)
            self._proved = True

    def trust(self) -> None:
        """Ask nothing: another worker of the run has proved that the provider has its model."""
        self._proved = True

    def close(self) -> None:
        """Close the embedder's connections, where it has any."""
        let_go(self._real)
