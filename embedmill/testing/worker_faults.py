"""Faults for real workers: texts that raise, end or hang the process that meets them.

They travel to the worker's process by name and work there through ``embedmill.assembly.seams``, so
that product code knows nothing of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa

from embedmill.assembly import Seams, seams
from embedmill.embedder import EmbeddedTexts, Embedder, Role
from embedmill.errors import PermanentError
from embedmill.parser import ParsedDocument
from embedmill.parsers.by_media_type import MediaTypeParser
from embedmill.source import Source, Split

Fate = Literal["raise", "exit", "hang"]
# For as long as the process lives: a worker is built once.
_for_life = ExitStack()


@dataclass(frozen=True, slots=True)
class Faults:
    """What goes wrong in a worker. Picklable.

    Attributes:
        embedding: fate of the worker that embeds a text with a word, by word.
        parsing: fate of the worker that parses a document with a word, by word.
        pause_s: that every call of the embedder takes longer, so that a run lasts long enough to
            be interrupted.
        read_pause_s: that every block of the source takes longer.
        embed_log: every call of the embedder adds a line to this file when it begins, as that is
            when it begins to cost: a digest of its texts, and their number.
        held_after: so many lines of the log, all runs together; further calls wait for
            :func:`let_go`. None: none waits.
    """

    embedding: Mapping[str, Fate] = field(default_factory=dict)
    parsing: Mapping[str, Fate] = field(default_factory=dict)
    pause_s: float = 0.0
    read_pause_s: float = 0.0
    embed_log: str = ""
    held_after: int | None = None

    def seams(self) -> Seams:
        """What makes them happen in this process."""
        return Seams(
            source=lambda real: SlowSource(real, self.read_pause_s),
            parser=lambda real: FaultyParser(real, self),
            embedder=lambda real: FaultyEmbedder(real, self),
        )


@dataclass(frozen=True, slots=True)
class Faulty:
    """Builds a worker in a process that has faults from then on. Stands in for its class."""

    factory: type[object]
    faults: Faults

    @property
    def __name__(self) -> str:
        """The class's, by which the process is named."""
        return self.factory.__name__

    def __call__(self, *arguments: object) -> object:
        """Build the worker."""
        _for_life.enter_context(seams(self.faults.seams()))
        return self.factory(*arguments)


@dataclass(frozen=True, slots=True)
class SlowSource:
    """A source whose blocks take their time."""

    real: Source
    pause_s: float

    def splits(self) -> list[Split]:
        """The real one's."""
        return self.real.splits()

    def read(self, split: Split) -> Iterator[pa.Table]:
        """The real one's blocks, each after a pause."""
        for block in self.real.read(split):
            time.sleep(self.pause_s)
            yield block


class FaultyEmbedder:
    """An embedder that meets its fate at some words; queries are spared.

    ``raise`` is the failure of a row, as the contract of an embedder has it.
    """

    def __init__(self, real: Embedder, faults: Faults) -> None:
        self.recipe = real.recipe
        self._real = real
        self._faults = faults

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """Embed as the real one does, unless a text has one of the words."""
        if role == "query":
            return self._real.embed(texts, role)
        if self._faults.embed_log:
            self._note(Path(self._faults.embed_log), texts)
        refused: dict[int, PermanentError] = {}
        for row, text in enumerate(texts):
            try:
                _meet(text, self._faults.embedding)
            except PermanentError as error:
                refused[row] = error
        time.sleep(self._faults.pause_s)
        embedded = self._real.embed(texts, role)
        embedded.vectors[list(refused)] = np.nan
        return replace(embedded, failures={**embedded.failures, **refused})

    def _note(self, log: Path, texts: Sequence[str]) -> None:
        _note(log, texts)
        held_after = self._faults.held_after
        if held_after is not None and len(embedded_batches(log)) > held_after:
            while not _let_go(log).exists():
                time.sleep(0.01)


class FaultyParser(MediaTypeParser):
    """A parser that meets its fate at some words."""

    def __init__(self, real: MediaTypeParser, faults: Faults) -> None:
        super().__init__()
        self._real = real
        self._faults = faults

    @property
    def fingerprint(self) -> str:
        """The real one's."""
        return self._real.fingerprint

    def parse(self, content: bytes, media_type: str) -> ParsedDocument:
        """Parse as the real one does, unless the document has one of the words."""
        _meet(content.decode("utf-8", "replace"), self._faults.parsing)
        return self._real.parse(content, media_type)

    def fallback_for(self, content: bytes) -> str:
        """The real one's."""
        return self._real.fallback_for(content)


def embedded_batches(embed_log: Path) -> list[tuple[str, int]]:
    """What the calls of a log embedded, in order: digest and number of texts."""
    if not embed_log.exists():
        return []
    # What is behind the last end of a line is just being written.
    whole = embed_log.read_text().rpartition("\n")[0]
    lines = [line.split() for line in whole.splitlines()]
    return [(digest, int(count)) for digest, count in lines]


def let_go(embed_log: Path) -> None:
    """Let calls that are held go on, and all that follow."""
    _let_go(embed_log).touch()


def hold(embed_log: Path) -> None:
    """Forget that calls were let go."""
    _let_go(embed_log).unlink(missing_ok=True)


def _let_go(embed_log: Path) -> Path:
    return embed_log.with_name(f"{embed_log.name}.go")


def _note(path: Path, texts: Sequence[str]) -> None:
    digest = blake2b("\0".join(texts).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    line = f"{digest} {len(texts)}\n".encode()
    # One write to a file opened for appending: lines of several processes do not mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def _meet(text: str, fates: Mapping[str, Fate]) -> None:
    for word, fate in fates.items():
        if word not in text:
            continue
        match fate:
            case "raise":
                raise PermanentError(f"met {word}", code="injected")
            case "exit":
                # Not sys.exit: nothing may run after it, as in a crash.
                os._exit(13)
            case "hang":
                time.sleep(3600)
