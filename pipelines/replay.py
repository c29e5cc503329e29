"""Replay: send dead rows through the same path again, into the same version."""

from __future__ import annotations

from collections.abc import Sequence

from embedmill.assembly import build_source, require_local_store, workspace_of
from embedmill.executor import Executor
from embedmill.open_letters import OpenLetter, note_replay
from embedmill.rate_assembly import require_keeper
from embedmill.run_report import RunReport
from embedmill.settings import Settings
from pipelines.execution import Execution
from pipelines.open_version import open_version
from pipelines.recognition import only_of
from pipelines.run_options import RunOptions


def replay(
    settings: Settings,
    executor: Executor,
    letters: Sequence[OpenLetter],
    options: RunOptions | None = None,
) -> RunReport:
    """Try the rows of some letters again.

    Documents that could not be read, parsed or chunked are read from the source again; chunks that
    died later are taken from the workspace, so that a replay of them needs no source.

    Args:
        settings: of the index.
        executor: runs the workers; closed by the caller.
        letters: which rows.
        options: of this run.

    Returns:
        The report; rows that fail again have new letters.

    Raises:
        RefusedError: as for ingest.
        StopRunError: as for ingest.
    """
    require_local_store(settings, executor.name)
    require_keeper(settings.embedder)
    stored: dict[int, dict[str, None]] = {}
    unread: set[str] = set()
    for item in letters:
        letter = item.letter
        if letter.chunk_index < 0:
            unread.add(letter.doc_id or letter.uri)
        else:
            # In the order of the letters, each once.
            stored.setdefault(letter.shard, {})[letter.doc_id] = None
    splits = only_of(build_source(settings).splits(), unread) if unread else []
    with open_version(settings, "replay", options or RunOptions()) as version:
        execution = version.execution(executor)
        note_replay(workspace_of(settings), settings.index, version.context.run, letters)

        def work(execution: Execution) -> None:
            execution.prepare(splits=splits)
            execution.redraft({shard: list(doc_ids) for shard, doc_ids in stored.items()})
            if unread:
                execution.scan(splits, frozenset(unread))
                execution.drain()

        return version.run(execution, work)
