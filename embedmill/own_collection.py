"""The collection of an index version in the index's own store: whose it is, before it is written.

A collection is named after its index (``docs--v1``), so two workspaces that have an index of one
name meet in one store, and so does a new workspace with what an earlier one has left there. Written
to all the same, such a collection would hold records of both. Whose it is a note in the workspace
says, which is put while the collection is empty. Two workspaces that find it empty in the same
moment are not told apart.
"""

from __future__ import annotations

from embedmill.applied_layer import AppliedLayer
from embedmill.assembly import Layers, collection_spec
from embedmill.copying import OtherStore, is_ours, note_ours
from embedmill.errors import RefusedError
from embedmill.manifest import Manifest
from embedmill.plain_numbers import number_of
from embedmill.run_context import RunContext
from embedmill.store_checks import LOST_COLLECTION
from embedmill.vector_store import VectorStore
from embedmill.workspace import Workspace


def owns(workspace: Workspace, index: str, collection: str, own: OtherStore) -> bool:
    """Whether an index has put there what a collection of its own store holds.

    A note goes with the store's address, which may be written in several ways; and indexes of
    earlier releases have none. What was applied tells as well.
    """
    return is_ours(workspace, index, collection, own) or bool(
        AppliedLayer(workspace, index, collection).committed()
    )


def open_own_collection(
    context: RunContext, layers: Layers, store: VectorStore, *, refill: bool = False
) -> None:
    """Create the version's collection if there is none; doing it again changes nothing.

    Args:
        context: of a run on the version, not of a copy.
        layers: of the version.
        store: the index's own, opened.
        refill: one that is lost is made anew; the caller fills it again.

    Raises:
        RefusedError: the collection is lost (segments of it are recorded as stored), has records
            or a spec that this index has not given it, or an alias has its name.
        StopRunError: nothing can be written there.
    """
    own = OtherStore.of(context.settings.store)
    place = layers.workspace, context.settings.index, context.collection, own
    exists = context.collection in store.collections()
    noted = is_ours(*place)
    # A note without a collection: nothing was written yet.
    ours = (noted and exists) or bool(layers.applied.committed())
    if ours and not exists and not refill:
        raise lost_collection(context.collection, hint=_fill_again(context, layers))
    spec = collection_spec(context.embedding)
    try:
        store.create_collection(context.collection, spec)
    except RefusedError as error:
        if ours or error.code != "spec-mismatch":
            raise
        raise RefusedError(str(error), code=error.code, hint=_way_out(context)) from error
    if noted:
        return
    records = store.count(context.collection)
    if records and not ours:
        raise RefusedError(
            f"collection {context.collection!r} in {own} has {number_of(records, 'record')} that "
            f"this index has not put there: an index {context.settings.index!r} of another "
            "workspace writes to the same store, or has left them",
            code="foreign-records",
            hint=_way_out(context),
        )
    note_ours(*place)


def lost_collection(collection: str, *, hint: str = LOST_COLLECTION) -> RefusedError:
    """What to say where a collection is gone that the workspace knows to have records."""
    return RefusedError(
        f"there is no collection {collection!r} in the store, and it is recorded to have been "
        "filled",
        code="no-collection",
        hint=hint,
    )


def _fill_again(context: RunContext, layers: Layers) -> str:
    published = Manifest(layers.workspace, context.settings.index).read().published
    if published is not None and published.name == context.version:
        return LOST_COLLECTION
    # An audit is of what readers see.
    folder = f"{layers.workspace.url}/indexes/{context.settings.index}/applied/{context.applied}"
    return (
        f"see whether `store` names where {context.version} was built; if it is lost, delete "
        f"{folder} and run the same command again: the store is given everything from the "
        "workspace, nothing is embedded for it"
    )


def _way_out(context: RunContext) -> str:
    number = context.version.removeprefix("v")
    return (
        "give this index another name, or another store; or leave the collection as it is: "
        f"embedmill retire {number} -c SETTINGS, and the same command again begins a version with "
        "a collection of its own; embedmill publish -c SETTINGS takes the alias' readers to it"
    )
