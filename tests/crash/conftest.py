"""Rounds of tests that kill at random moments, and what all tests of kills need."""

import pytest
from commands import Command, KilledIndex

from embedmill.executor import InlineExecutor
from embedmill.testing.index_contents import contents_of
from embedmill.testing.rehearsal import Rehearsal
from pipelines.ingest import ingest


def pytest_addoption(parser):
    parser.addoption("--rounds", type=int, help="rounds of every test that kills at random moments")


def pytest_generate_tests(metafunc):
    """A test that takes ``seed`` is run as often as ``--rounds`` says, else as it says itself."""
    if "seed" in metafunc.fixturenames:
        few = metafunc.definition.get_closest_marker("rounds").args[0]
        rounds = metafunc.config.getoption("rounds", None) or few
        metafunc.parametrize("seed", range(rounds))


def pytest_configure(config):
    config.addinivalue_line("markers", "rounds(few): how often without --rounds")


@pytest.fixture
def index(tmp_path):
    return KilledIndex(tmp_path)


@pytest.fixture
def run(index):
    """Starts commands on the index; none of their processes outlives the test."""
    started = []

    def start(*arguments, **more):
        started.append(Command(index, *arguments, **more))
        return started[-1]

    yield start
    for command in started:
        command.kill_all()


@pytest.fixture
def uninterrupted(tmp_path):
    """Contents and embedded texts of an index that was built at once, in one process."""

    def build(texts):
        plain = Rehearsal(tmp_path / "uninterrupted")
        plain.folder.mkdir()
        plain.write(texts)
        executor = InlineExecutor()
        report = ingest(plain.settings(), executor)
        executor.close()
        return contents_of(plain.settings()), report.chunks.embedded

    return build
