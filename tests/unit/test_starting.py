"""What a command does not load: a person who asks for something small does not wait for Ray."""

import subprocess
import sys

import pytest

from embedmill.executor import InlineExecutor
from embedmill.testing.rehearsal import Rehearsal, made_up_texts
from pipelines.cli import COMMANDS, command_of
from pipelines.ingest import ingest

# Seconds to import each, and nothing that a command needs which neither embeds nor writes.
HEAVY = {
    "bs4",
    "httpx2",
    "nncf",
    "onnxruntime",
    "openai",
    "openvino",
    "pandas",
    "pinecone",
    "pyarrow.dataset",
    "qdrant_client",
    "ray",
    "redis",
    "sentence_transformers",
    "torch",
    "transformers",
    "weaviate",
}
# What takes a tenth of a second is too much for a list of commands.
NOTICED = {"numpy", "obstore", "pyarrow", "pydantic", "tokenizers", "yaml"}


def loaded_by(statement, *arguments):
    """Modules that a process has loaded at its end, and what it printed before."""
    program = (
        "import sys\n"
        f"try:\n    {statement}\n"
        "except SystemExit as end:\n    assert not end.code, end.code\n"
        "print('LOADED', *sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said, _, names = done.stdout.rpartition("LOADED ")
    return set(names.split()), said


def loaded_by_commands(*commands):
    """Modules that commands have loaded which ran in turn in one process, and what they printed."""
    return loaded_by(f"""for sys.argv[1:] in {[list(map(str, one)) for one in commands]}:
        try:
            from pipelines.cli import main; main()
        except SystemExit as end:
            assert not end.code, end.code""")


@pytest.fixture
def built(tmp_path):
    rehearsal = Rehearsal(tmp_path)
    rehearsal.write(made_up_texts(12))
    settings = rehearsal.settings()
    executor = InlineExecutor()
    ingest(settings, executor)
    executor.close()
    return rehearsal


def test_the_command_line_itself_loads_next_to_nothing():
    loaded, _ = loaded_by("import pipelines.cli")
    assert not loaded & (HEAVY | NOTICED)


def test_listing_the_commands_loads_none_of_them():
    loaded, said = loaded_by_commands(["--help"])
    assert not loaded & (HEAVY | NOTICED)
    assert "check-query" in said


def test_the_commands_are_listed_with_their_own_first_lines():
    for name, place in COMMANDS.items():
        said = " ".join((command_of(name).help or "").split())
        assert said.startswith(place.help), name


def test_looking_at_an_index_loads_no_engine(built):
    looks = (["status"], ["versions"], ["versions", "show", "v1"])
    loaded, said = loaded_by_commands(*([*look, "--config", built.config] for look in looks))
    assert not loaded & HEAVY
    assert "rehearsal" in said
    assert "v1" in said


def test_a_run_with_nothing_to_do_starts_no_engine_and_no_ray(built):
    loaded, said = loaded_by_commands(["ingest", built.config])
    assert not loaded & HEAVY
    assert "in this process: nothing to do" in said


def test_a_small_change_is_taken_in_without_ray(built):
    built.write({**made_up_texts(12), "doc-00003": "something else entirely"})
    loaded, said = loaded_by_commands(["ingest", built.config])
    assert not loaded & HEAVY
    assert "1 changed" in said
    assert "in this process: succeeded" in said
