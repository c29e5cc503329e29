"""Commands about the versions of an index."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import typer

from embedmill.assembly import workspace_of
from embedmill.manifest import IndexVersion, Manifest
from pipelines.cli_options import (
    DEFAULT_CONFIG,
    ConfigOption,
    IndexOption,
    JsonOption,
    SetOption,
    out,
    print_lines,
    reports_errors,
    settings_from,
)
from pipelines.cli_reading import print_json

app = typer.Typer(
    help="Versions of an index: recipe, counts, state. Without a command: all of them."
)


@app.callback(invoke_without_command=True)
@reports_errors
def versions(
    context: typer.Context,
    *,
    config: ConfigOption = DEFAULT_CONFIG,
    index: IndexOption = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the versions of an index: recipe, counts, state."""
    if context.invoked_subcommand is not None:
        return
    settings = settings_from(config, overrides, index)
    state = Manifest(workspace_of(settings), settings.index).read()
    if as_json:
        print_json([asdict(version) for version in state.versions])
        return
    if not state.versions:
        out.print(f"index {settings.index!r} has no versions yet")
        return
    for version in state.versions:
        print_lines(version_lines(version))


def version_lines(version: IndexVersion) -> Iterator[str]:
    """A version for a person."""
    counts = version.counts
    known = ", ".join(f"{value:,} {key.replace('_', ' ')}" for key, value in counts.items())
    chunking, embedding = version.chunking, version.embedding
    yield f"{version.name}  {version.state}  {known or 'not complete yet'}"
    yield f"    created     {version.created}, published {version.published or 'never'}"
    if version.retired or version.pruned:
        gone = f", its data deleted {version.pruned}" if version.pruned else ""
        yield f"    retired     {version.retired or 'never'}{gone}"
    yield f"    last run    {version.last_run or 'none that ended well'}"
    yield (
        f"    chunks by   {chunking.id}: {chunking.splitter}, at most {chunking.max_tokens} "
        f"tokens, overlap {chunking.overlap}"
    )
    yield (
        f"    vectors by  {embedding.id}: {embedding.model} ({embedding.revision}), "
        f"{embedding.dimension} dimensions, {embedding.dtype}, {embedding.metric}"
    )
    prompts = f"document {embedding.document_prompt!r}, query {embedding.query_prompt!r}"
    yield f"    prompts     {prompts}"
    yield f"    collection  {version.collection}, {version.shard_count} shards"
