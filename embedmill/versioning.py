"""Which index version a run works on, and whether its recipe is the one that was asked for."""

from __future__ import annotations

from dataclasses import replace

from embedmill.chunkers.build import adopted_chunking
from embedmill.errors import RecipeMismatchError, RefusedError
from embedmill.manifest import IndexVersion, Manifest, ManifestState
from embedmill.plain_numbers import number_of
from embedmill.pruning import finish_pruning
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe, differences
from embedmill.run_context import who
from embedmill.settings import SentenceTransformersSettings, Settings
from embedmill.workspace import Workspace

Recipes = tuple[ChunkingRecipe, EmbeddingRecipe]


def version_for_ingest(
    settings: Settings, state: ManifestState, wanted: Recipes, *, now: str
) -> IndexVersion:
    """The version that an ingest continues, or the first one, not yet committed.

    Args:
        settings: of the index.
        state: of its manifest.
        wanted: what the settings ask for.
        now: UTC, ISO 8601.

    Raises:
        RecipeMismatchError: the index has another recipe; the message says each difference.
        RefusedError: the shard count is another.
    """
    current = state.current
    if current is None:
        return _next_version(settings, state, wanted, now=now)
    _require_shards(settings, current)
    changes = recipe_changes(settings, current, wanted)
    if changes:
        listed = "\n".join(f"  {change}" for change in changes)
        raise RecipeMismatchError(
            f"the settings ask for another recipe than {current.name} of index "
            f"{settings.index!r} has; nothing was changed:\n{listed}",
            hint=_way_out(settings, state, current, wanted),
        )
    return current


def _way_out(
    settings: Settings, state: ManifestState, current: IndexVersion, wanted: Recipes
) -> str:
    if current.state != "published":
        return (
            f"set the settings back; or give {current.name} up with: embedmill retire "
            f"{current.number} -c SETTINGS; ingest then begins a new version"
        )
    built = built_version(settings, state, wanted)
    if built is not None and built.state in {"ready", "retired"}:
        return (
            f"{built.name} has the recipe of the settings: embedmill publish {built.number} -c "
            "SETTINGS sends readers to it; or set the settings back"
        )
    return (
        "build a new version beside it with embedmill reembed SETTINGS, then embedmill publish -c "
        "SETTINGS; or set the settings back"
    )


def version_for_reembed(
    settings: Settings, state: ManifestState, wanted: Recipes, *, now: str
) -> IndexVersion | None:
    """The version that a rebuild continues, or the next one, not yet committed.

    Args:
        settings: of the index.
        state: of its manifest.
        wanted: what the settings ask for.
        now: UTC, ISO 8601.

    Returns:
        None when the published version has the recipe already.

    Raises:
        RefusedError: nothing is published yet, or the shard count is another.
    """
    published = state.published
    if published is None:
        raise RefusedError(
            f"index {settings.index!r} has no published version to build another one beside",
            code="not-published",
            hint="run embedmill ingest SETTINGS: the first complete version goes live by itself",
        )
    _require_shards(settings, published)
    if not recipe_changes(settings, published, wanted):
        return None
    # Another model over the same chunks does not read the source again.
    chunking = adopted_chunking(settings.chunker, published.chunking, wanted[0])
    wanted = chunking, wanted[1]
    return built_version(settings, state, wanted) or _next_version(settings, state, wanted, now=now)


def begin_version(
    workspace: Workspace, manifest: Manifest, index: str, version: IndexVersion
) -> ManifestState:
    """The manifest's state with this version in it; one that it does not have yet is begun.

    Raises:
        RefusedError: there was a version of this number, of which the manifest knows nothing.
    """
    state = manifest.read()
    if version.number in {known.number for known in state.versions}:
        return state
    _require_unused(workspace, index, version)
    finish_pruning(workspace, index, state, version.chunking)
    return manifest.commit(version.noted("begun", at=version.created, by=who()), state)


def _require_unused(workspace: Workspace, index: str, version: IndexVersion) -> None:
    """What was applied under another recipe would count as applied under this one."""
    applied = f"indexes/{index}/applied/{version.collection}"
    if any(True for _ in workspace.list(applied)):
        raise RefusedError(
            f"records were written to {version.collection} before, but the manifest of index "
            f"{index!r} does not know {version.name}: its newest files are lost",
            code="manifest-lost",
            hint=f"restore indexes/{index}/manifest from a copy of the workspace; where there is "
            f"none, delete {applied} and, in the store, collection {version.collection}: the new "
            f"{version.name} uses what is cut and embedded already",
        )


def built_version(settings: Settings, state: ManifestState, wanted: Recipes) -> IndexVersion | None:
    """The newest version, not the published one, that has the wanted recipe and still its data."""
    found = [
        version
        for version in state.versions
        if version.state in {"building", "ready", "retired"}
        and version.pruned is None
        and not recipe_changes(settings, version, wanted)
    ]
    return found[-1] if found else None


def recipe_changes(settings: Settings, existing: IndexVersion, wanted: Recipes) -> list[str]:
    """One line per attribute in which the wanted recipes differ from a version's."""
    chunking, embedding = wanted
    return [
        *differences(
            existing.chunking, adopted_chunking(settings.chunker, existing.chunking, chunking)
        ),
        *differences(existing.embedding, adopted(settings, existing.embedding, embedding)),
    ]


def adopted(
    settings: Settings, existing: EmbeddingRecipe, wanted: EmbeddingRecipe
) -> EmbeddingRecipe:
    """What is wanted, with the existing dtype where the settings leave it open.

    An index that was built in bfloat16 stays so on a machine that would have chosen float32.
    """
    embedder = settings.embedder
    if isinstance(embedder, SentenceTransformersSettings) and embedder.dtype == "auto":
        return replace(wanted, dtype=existing.dtype)
    return wanted


def _next_version(
    settings: Settings, state: ManifestState, wanted: Recipes, *, now: str
) -> IndexVersion:
    number, published = state.next_number, state.published
    chunking, embedding = wanted
    return IndexVersion(
        number=number,
        state="building",
        chunking=chunking,
        embedding=embedding,
        collection=f"{settings.index}--v{number}",
        shard_count=settings.shard_count,
        created=now,
        parent=published.number if published else None,
    )


def _require_shards(settings: Settings, current: IndexVersion) -> None:
    if current.shard_count != settings.shard_count:
        raise RefusedError(
            f"index {settings.index!r} has {number_of(current.shard_count, 'shard')} for its whole "
            f"life, the settings say {settings.shard_count}",
            code="shard-count",
            hint=f"set shard_count: {current.shard_count}",
        )
