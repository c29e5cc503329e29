"""One Ray for all tests of this folder; each test leaves it without a worker."""

import os
import signal
import time

import psutil
import pytest

from embedmill.executor import InlineExecutor
from embedmill.testing.index_contents import contents_of
from embedmill.testing.rehearsal import Rehearsal
from pipelines.ingest import ingest

# Read by Ray when it is imported.
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
# Workers have the environment that Ray was started in.
os.environ["FAKE_OPENAI_KEY"] = "sk-fake"


@pytest.fixture(scope="session")
def ray_session():
    """Logical cores are free: more of them than the machine has."""
    from actors.ray_session import RaySession

    before = {child.pid for child in psutil.Process().children()}
    session = RaySession(object_store_bytes=100 * 2**20, cpus=4)
    yield session
    session.close()
    left = [child for child in psutil.Process().children() if child.pid not in before]
    assert psutil.wait_procs(left, timeout=30)[1] == []


@pytest.fixture
def open_executor(ray_session):
    """Opens executors on the shared Ray; their workers are gone when the test ends."""
    from actors.actor_pool import Deadlines, RayExecutor

    opened = []

    def open_one(**deadlines):
        opened.append(RayExecutor(ray_session, deadlines=Deadlines(**deadlines)))
        return opened[-1]

    yield open_one
    for executor in opened:
        executor.close()
    assert eventually(lambda: worker_processes() == [])


@pytest.fixture
def kill_worker():
    """Kills the process of a worker that has answered; which one may be on its way still."""

    def kill(executor, pool, worker):
        process = None

        def known():
            nonlocal process
            process = executor.process_of(pool, worker)
            return process is not None

        assert eventually(known)
        os.kill(process, signal.SIGKILL)

    return kill


@pytest.fixture
def living_workers():
    """Looks which processes of actors there are."""
    return worker_processes


@pytest.fixture
def rehearsal(tmp_path):
    """An index in a folder of the test."""
    return Rehearsal(tmp_path)


@pytest.fixture
def expected(tmp_path):
    """Builds what an index of some documents holds: at once, in one process."""

    def build(texts):
        number = len(list(tmp_path.glob("expected-*")))
        plain = Rehearsal(tmp_path / f"expected-{number}")
        plain.folder.mkdir()
        plain.write(texts)
        executor = InlineExecutor()
        ingest(plain.settings(), executor)
        executor.close()
        return contents_of(plain.settings())

    return build


def is_actor(process):
    """Whether Ray shows a process by the name of an actor; the system cuts names off."""
    of_ray = ("ray::IDLE", "ray::DashboardA", "ray::RuntimeEnv")
    return process.name().startswith("ray::") and not process.name().startswith(of_ray)


def worker_processes():
    """Processes of actors below this one."""
    found = []
    for child in psutil.Process().children(recursive=True):
        try:
            if is_actor(child) and child.status() != psutil.STATUS_ZOMBIE:
                found.append(child)
        except psutil.NoSuchProcess:
            continue
    return found


def eventually(holds, timeout_s=30.0):
    """Whether something comes to hold in time."""
    deadline = time.monotonic() + timeout_s
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.fixture
def by_value(request):
    """Sends what the module of the test defines to workers: they cannot import it."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(request.module)
    yield
    cloudpickle.unregister_pickle_by_value(request.module)
