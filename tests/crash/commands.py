"""Commands that run in processes of their own, and their ends."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil

from embedmill.testing.rehearsal import Rehearsal
from embedmill.testing.worker_faults import embedded_batches, hold, let_go

SLOW_COMMAND = Path(__file__).with_name("slow_command.py")
INTERRUPTED = 75


class Command:
    """One ``embedmill ingest`` in a session of its own, with all its processes."""

    def __init__(self, index, *arguments, pause_s=0.05, held_after=None):
        self.index = index
        self.stdout = index.folder / "stdout"
        self.stderr = index.folder / "stderr"
        held = "" if held_after is None else str(held_after)
        command = [sys.executable, SLOW_COMMAND, index.embed_log, str(pause_s), held]
        where = [] if "--local" in arguments else ["--ray"]
        with self.stdout.open("w") as out, self.stderr.open("w") as err:
            self.process = subprocess.Popen(
                [*command, "ingest", index.config, "--json", *where, *arguments],
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self.process.pid

    def wait(self, timeout_s=120.0):
        """Exit status, once it has ended."""
        return self.process.wait(timeout_s)

    def report(self):
        """What it printed at its end."""
        return json.loads(self.stdout.read_text())

    def wait_until(self, holds, timeout_s=90.0):
        """Return when something holds, or when the command has ended."""
        deadline = time.monotonic() + timeout_s
        while not holds() and self.process.poll() is None:
            assert time.monotonic() < deadline, self.stderr.read_text()
            time.sleep(0.005)

    def processes(self):
        """The driver and all its descendants, and whatever else is of its session."""
        found = {}
        for process in psutil.process_iter():
            try:
                parents = {parent.pid for parent in process.parents()}
                if self.pid in {process.pid, *parents} or os.getsid(process.pid) == self.pid:
                    found[process.pid] = process
            except (psutil.NoSuchProcess, ProcessLookupError):
                continue
        return list(found.values())

    def kill_all(self):
        """``kill -9`` of every process; returns when none is left."""
        while True:
            # The driver may be gone already, and is no process any more once it was waited for.
            left = [p for p in self.processes() if lives(p)]
            if not left:
                break
            for process in left:
                try:
                    process.kill()
                except psutil.NoSuchProcess:
                    continue
            self.process.poll()
            time.sleep(0.02)
        self.process.wait(60)


class KilledIndex(Rehearsal):
    """A rehearsal whose commands are killed."""

    __slots__ = ()

    @property
    def embed_log(self):
        return self.folder / "embedded"

    def calls(self):
        """Calls of the embedder so far, all runs together."""
        return len(embedded_batches(self.embed_log))

    def hold(self):
        """Let commands wait that are to be held."""
        hold(self.embed_log)

    def let_go(self):
        """Let commands go on that are held in the middle of their work."""
        let_go(self.embed_log)

    def texts_embedded(self):
        """Texts that were given to the embedder, all runs together."""
        return sum(count for _, count in embedded_batches(self.embed_log))


def lives(process):
    """Whether a process runs; it may be gone by the time that it is asked."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
