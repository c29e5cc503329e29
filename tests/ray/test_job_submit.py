"""The whole way of a Ray job: a head of our own, scripts/submit, an index afterwards."""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from embedmill.assembly import workspace_of
from embedmill.index_reader import open_index
from embedmill.run_report import read_reports
from embedmill.testing.kept_port import kept_port, port_of
from embedmill.testing.rehearsal import made_up_texts

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
ROOT = Path(__file__).parents[2]


class Head:
    """A Ray head with its dashboard, and the environment of who talks to it."""

    def __init__(self, folder):
        # Nobody else gets them until it listens there, and that takes seconds.
        self._kept = [kept_port() for _ in range(4)]
        gcs, dashboard, agent, client = map(port_of, self._kept)
        self.address = f"http://127.0.0.1:{dashboard}"
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            # Ray finds `python` for a job by the head's PATH.
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_API_SERVER_ADDRESS": self.address,
        }
        command = [Path(sys.executable).parent / "ray", "start", "--head", "--block"]
        options = {
            "node-ip-address": "127.0.0.1",
            "port": gcs,
            "dashboard-host": "127.0.0.1",
            "dashboard-port": dashboard,
            "dashboard-agent-listen-port": agent,
            "ray-client-server-port": client,
            "temp-dir": folder,
            "num-cpus": 2,
            "object-store-memory": 100 * 2**20,
        }
        self.log = folder / "head.log"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*command, "--disable-usage-stats", *(f"--{k}={v}" for k, v in options.items())],
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def wait_until_it_answers(self):
        deadline = time.monotonic() + 90
        while not self.answers():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.3)

    def answers(self):
        token = self.environment["RAY_AUTH_TOKEN"]
        request = urllib.request.Request(
            f"{self.address}/api/version", headers={"Authorization": f"Bearer {token}"}
        )
        try:
            with urllib.request.urlopen(request, timeout=5) as answer:
                return answer.status == 200
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            return False

    def submit(self, *command, root=ROOT):
        """Run scripts/submit to its end."""
        return self._run(root / "scripts" / "submit", *command)

    @contextmanager
    def following(self, *command, root):
        """Run scripts/submit meanwhile."""
        process = subprocess.Popen(
            [root / "scripts" / "submit", *command],
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stderr.close()

    def ray(self, *command):
        """Run Ray's own command line."""
        return self._run(Path(sys.executable).parent / "ray", *command)

    def _run(self, *command):
        return subprocess.run(
            command,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )

    def end(self):
        """Ask it to end; nothing of it may be left."""
        family = [self.process, *psutil.Process(self.process.pid).children(recursive=True)]
        os.kill(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        left = psutil.wait_procs(family[1:], timeout=60)[1]
        for process in left:
            process.kill()
        for kept in self._kept:
            kept.close()
        assert left == []


@pytest.fixture(scope="module")
def head():
    # Not below pytest's folder: its name is too long for a socket.
    folder = Path(tempfile.mkdtemp(prefix="embedmill-head-", dir="/tmp"))
    head = Head(folder)
    try:
        head.wait_until_it_answers()
        yield head
    finally:
        head.end()
        shutil.rmtree(folder, ignore_errors=True)


def eventually(holds, timeout_s):
    deadline = time.monotonic() + timeout_s
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.1)
    return holds()


@pytest.fixture
def changed_copy(rehearsal):
    """Copies the code, with lines added to some of its modules."""

    def copy(lines):
        folder = rehearsal.folder / "copy"
        for package in ("embedmill", "actors", "pipelines", "scripts"):
            shutil.copytree(ROOT / package, folder / package)
        (folder / ".venv").symlink_to(ROOT / ".venv")
        for module, line in lines.items():
            with (folder / module).open("a") as file:
                file.write(f"\n{line}\n")
        return folder

    return copy


def test_a_job_runs_the_uploaded_code_and_its_dead_letters_show_in_its_status(
    head, rehearsal, changed_copy
):
    """The package is installed on this machine too; a changed copy shows which one was taken."""
    copy = changed_copy(
        {
            "pipelines/execution.py": "log.warning('uploaded driver')",
            "actors/store_writer.py": "import logging\n_count = StoreWriter.count\n"
            "def _said(self):\n    logging.warning('uploaded worker')\n    return _count(self)\n"
            "StoreWriter.count = _said",
        }
    )
    rehearsal.write({**made_up_texts(40), "twice": "The words of a row."})
    with rehearsal.source.open("a") as rows:
        rows.write('{"id": "twice", "text": "Another row of the same id."}\n')
    settings = rehearsal.settings(shard_workers=1, embed_workers=1)

    done = head.submit("ingest", str(rehearsal.config), root=copy)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "42 read = 41 added + 0 changed + 0 unchanged + 1 dead" in done.stdout
    assert "uploaded driver" in done.stdout
    assert "write worker 0: uploaded worker" in done.stdout
    with open_index(settings) as reader:
        hits = reader.search("The words of a row.", 1)
    assert hits[0].payload["doc_id"] == "twice"

    # What goes well ends well; the options of a command reach it.
    told = head.submit("status", "--config", str(rehearsal.config), "--json", root=copy)
    assert told.returncode == 0, told.stdout + told.stderr
    assert '"rehearsal"' in told.stdout


def test_a_job_goes_on_without_its_follower_and_ends_in_order_when_it_is_stopped(
    head, rehearsal, changed_copy
):
    slow = (
        "import time\n_embed = HashingEmbedder.embed\n"
        "def _slow(*a):\n    time.sleep(0.5)\n    return _embed(*a)\n"
        "HashingEmbedder.embed = _slow"
    )
    copy = changed_copy({"embedmill/embedders/hashing.py": slow})
    rehearsal.write(made_up_texts(400))
    settings = rehearsal.settings(shard_workers=1, embed_workers=1)
    command = ("--id", "to-stop", "ingest", str(rehearsal.config))
    with head.following(*command, root=copy) as follower:
        vectors = "workspace/indexes/*/vectors/**/*.parquet"
        assert eventually(lambda: list(rehearsal.folder.glob(vectors)), 100)
        # The job outlives whoever follows it.
        follower.send_signal(signal.SIGINT)
        said = follower.communicate(timeout=30)[1]
    assert follower.returncode == 128 + signal.SIGINT
    assert "only this command has ended: job to-stop goes on" in said
    again = head.submit("--no-wait", *command, root=copy)
    assert again.returncode == 4
    assert "Job with submission_id to-stop already exists" in again.stderr
    stopped = head.ray("job", "stop", "to-stop")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    reports = read_reports(workspace_of(settings), settings.index)
    assert [report.status for _, report in reports] == ["interrupted"]
