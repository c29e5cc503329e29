"""Who takes part: the product, the frameworks as they come, and one that an expert set up."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from uuid import UUID

import numpy as np
import orjson

from benchmarks.ingesting import MINILM, settings_in
from benchmarks.machine import BenchError, Measured, measured_command
from benchmarks.peers.environments import install, offline, python_of
from embedmill.assembly import store_of, workspace_of
from embedmill.embedder import Vectors
from embedmill.manifest import Manifest
from embedmill.settings import Settings

_HERE = Path(__file__).parent
_CLI = Path(sys.executable).with_name("embedmill")
# Of the chunks that are stored: their vectors are compared with float32's.
SAMPLE = 256
Kind = Literal["ours", "variant", "default", "expert"]


@dataclass(frozen=True, slots=True)
class Stored:
    """What a run has left in its store.

    Attributes:
        points: how many.
        texts: of some of them.
        vectors: of the same, float32.
    """

    points: int
    texts: Sequence[str]
    vectors: Vectors


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to ingest a corpus.

    Attributes:
        name: for a person and for ``--only``.
        kind: ours, the same in another way, a framework as its documentation sets it up, or as
            an expert does.
        environment: of its packages; empty for ours.
        script: beside this file; empty for ours.
        options: of our command line.
        remembers: a rerun leaves out what is unchanged; without it a rerun is the cold run again.
    """

    name: str
    kind: Kind
    environment: str = ""
    script: str = ""
    options: tuple[str, ...] = ()
    remembers: bool = True


CONTENDERS = (
    Contender("embedmill", "ours"),
    Contender("embedmill --ray", "variant", options=("--ray",)),
    Contender("LlamaIndex", "default", "llamaindex", "with_llamaindex.py"),
    Contender("LangChain", "default", "langchain", "with_langchain.py"),
    Contender("Haystack", "default", "haystack", "with_haystack.py"),
    Contender("Ray Data", "default", "raydata", "with_ray_data.py", remembers=False),
    Contender(
        "LlamaIndex+OpenVINO", "expert", "llamaindex-openvino", "with_llamaindex_openvino.py"
    ),
)


class Runner:
    """Runs one contender, in a folder of its own for every cold start.

    Args:
        contender: which.
        cache: holds its environment.
        folder: of everything that its runs write.
        timeout_s: of one run.
        period_s: between two looks at its memory.
    """

    def __init__(
        self, contender: Contender, cache: Path, folder: Path, *, timeout_s: float, period_s: float
    ) -> None:
        self.contender = contender
        self._cache = cache
        self._folder = folder
        self._timeout_s = timeout_s
        self._period_s = period_s
        self._model = self._prepared() if contender.environment else Path()
        folder.mkdir(parents=True)

    def forget(self) -> None:
        """Leave nothing of earlier runs."""
        shutil.rmtree(self._state, ignore_errors=True)
        self._state.mkdir()

    def run(self, corpus: Path) -> Measured:
        """Ingest, from the start of the process to its end."""
        # Ours is the code beside this script, wherever the environment was installed from.
        ours = {} if self.contender.environment else {"PYTHONPATH": str(_HERE.parents[2])}
        return measured_command(
            self._command(corpus),
            self._folder,
            timeout_s=self._timeout_s,
            period_s=self._period_s,
            environment=offline(**ours),
        )

    def stored(self) -> Stored:
        """What is in its store now."""
        if not self.contender.environment:
            return _stored(self._settings(Path("unused")))
        python = python_of(self._cache, self.contender.environment)
        command = [str(python), str(_HERE / "read_points.py"), str(self._state), str(SAMPLE)]
        answer = _answer(command)
        return Stored(answer["count"], answer["texts"], np.array(answer["vectors"], np.float32))

    @property
    def _state(self) -> Path:
        return self._folder / "state"

    def _command(self, corpus: Path) -> list[str]:
        if not self.contender.environment:
            file = self._folder / "settings.yaml"
            # JSON is YAML.
            file.write_text(self._settings(corpus).model_dump_json())
            return [str(_CLI), "ingest", str(file), *self.contender.options]
        python = python_of(self._cache, self.contender.environment)
        script = _HERE / self.contender.script
        return [str(python), str(script), str(corpus), str(self._state), str(self._model)]

    def _settings(self, corpus: Path) -> Settings:
        # As the quickstart has it.
        return settings_in(
            self._state,
            {"path": str(corpus), "id_column": "id", "text_columns": ["text"]},
            chunker={"kind": "text"},
            embedder=MINILM,
            shard_count=4,
        )

    def _prepared(self) -> Path:
        """The model of a framework; converted where it computes by OpenVINO."""
        environment = self.contender.environment
        model = install(self._cache, environment)
        if self.contender.kind != "expert":
            return model
        converted = self._cache / environment / "model"
        if not converted.is_dir():
            partial = converted.with_name("model.partial")
            shutil.rmtree(partial, ignore_errors=True)
            script = str(_HERE / "export_openvino.py")
            python = python_of(self._cache, environment)
            _output([str(python), script, str(model), str(partial)])
            partial.rename(converted)
        return converted


def _stored(settings: Settings) -> Stored:
    """The same of the product, read through it."""
    version = Manifest(workspace_of(settings), settings.index).read().published
    assert version is not None
    store = store_of(settings)
    try:
        points = store.count(version.collection)
        ids = list(_some(sorted(store.ids(version.collection)), SAMPLE))
        batch = store.fetch(version.collection, ids)
    finally:
        store.close()
    return Stored(points, [str(payload["text"]) for payload in batch.payloads], batch.vectors)


def _some(ids: Sequence[UUID], how_many: int) -> Iterator[UUID]:
    yield from ids[:: max(1, len(ids) // how_many)][:how_many]


def _answer(command: Sequence[str]) -> dict[str, Any]:
    answer: dict[str, Any] = orjson.loads(_output(command).splitlines()[-1])
    return answer


def _output(command: Sequence[str]) -> str:
    ended = subprocess.run(  # noqa: S603 (ours)
        command, capture_output=True, text=True, check=False, env=dict(offline())
    )
    if ended.returncode:
        raise BenchError(f"{' '.join(command)} failed:\n{ended.stderr[-2000:]}")
    return ended.stdout
