"""The embedder of an index version, also of one that another model made than the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from pydantic import TypeAdapter, ValidationError

from embedmill.assembly import embedder_of
from embedmill.canary import CanaryLayer
from embedmill.embedder import Embedder
from embedmill.embedders.build import embedding_recipe
from embedmill.errors import MissingExtraError, RefusedError
from embedmill.manifest import IndexVersion
from embedmill.settings import EmbedderSettings, Settings
from embedmill.versioning import adopted
from embedmill.workspace import Workspace

_EMBEDDER: TypeAdapter[EmbedderSettings] = TypeAdapter(EmbedderSettings)


def embedder_for(settings: Settings, workspace: Workspace, version: IndexVersion) -> Embedder:
    """Load the model of a version.

    The settings' own embedder where it stands for the version's recipe; else the one that made the
    version's first vectors, as its settings were then.

    Raises:
        MissingExtraError: an optional package is not installed.
        RecipeMismatchError: the weights found are not those of the recipe.
        RefusedError: the model is nowhere to be found.
    """
    own = settings.embedder
    canary = CanaryLayer(workspace, settings.index).read(version.embedding)
    if canary is not None and not _stands_for(settings, version):
        then = _recorded(canary.embedder)
        settings = settings.model_copy(update={"embedder": then or own})
    return embedder_of(settings, version.embedding)


def _stands_for(settings: Settings, version: IndexVersion) -> bool:
    try:
        recipe = embedding_recipe(settings.embedder, version.embedding.metric)
    except (RefusedError, MissingExtraError):
        # The model that the settings name may be gone while the version's is there.
        return False
    return adopted(settings, version.embedding, recipe) == version.embedding


def _recorded(embedder: Mapping[str, Any]) -> EmbedderSettings | None:
    """Settings as they were; None when a later release no longer understands them."""
    try:
        # As JSON: strict models refuse lists for tuples elsewhere.
        return _EMBEDDER.validate_json(orjson.dumps(dict(embedder)))
    except ValidationError:
        return None
