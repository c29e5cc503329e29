"""A small corpus with settings over it: what a whole run needs and nothing else."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
import yaml

from embedmill.settings import Settings
from embedmill.settings_file import load_settings


def made_up_texts(count: int, *, seed: int = 0, longest: int = 300) -> dict[str, str]:
    """Texts of 5 to ``longest`` made-up words by document id; equal for equal arguments."""
    dice = random.Random(seed)  # noqa: S311 - nothing here is a secret
    words = [f"{a}{b}{c}" for a in "bdklmn" for b in "aeiou" for c in "rstvx"]
    return {
        f"doc-{number:05d}": f"Item {number}. "
        + " ".join(dice.choices(words, k=dice.randint(5, longest)))
        for number in range(count)
    }


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """An index in a folder: its source, its workspace, its store, its settings file."""

    folder: Path

    @property
    def source(self) -> Path:
        """The rows."""
        return self.folder / "rows.jsonl"

    @property
    def config(self) -> Path:
        """The settings file; written by :meth:`settings`."""
        return self.folder / "index.yaml"

    def write(self, texts: Mapping[str, str]) -> None:
        """Make the source hold these documents."""
        rows = [orjson.dumps({"id": name, "text": text}) for name, text in texts.items()]
        self.source.write_bytes(b"\n".join([*rows, b""]))

    def settings(self, *, source: Mapping[str, Any] | None = None, **run: Any) -> Settings:  # noqa: ANN401 - as in a settings file
        """Settings with vectors from hashed words and a store that needs no server.

        Args:
            source: instead of the rows.
            run: more of the section ``run``.
        """
        values = {
            "index": "rehearsal",
            "workspace": str(self.folder / "workspace"),
            "source": source or {"kind": "table", "path": str(self.source)},
            "chunker": {"kind": "text", "max_tokens": 60, "overlap": 5},
            "embedder": {"kind": "hashing", "dimension": 32, "max_tokens": 128},
            "store": {"kind": "qdrant_embedded", "path": str(self.folder / "store")},
            "shard_count": 4,
            "run": {
                "shard_workers": 2,
                "embed_workers": 2,
                "segment_chunks": 32,
                "object_store_bytes": 100 * 2**20,
                **run,
            },
        }
        self.config.write_text(yaml.safe_dump(values))
        return load_settings(self.config, [])
