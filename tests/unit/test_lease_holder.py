"""Who counts as alive."""

import os
import subprocess
import sys
from dataclasses import replace

import psutil

from embedmill.lease import Holder


def test_a_process_that_was_killed_holds_nothing_although_its_parent_has_not_noticed():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    me = Holder.this_process("ingest")
    holder = replace(me, pid=child.pid, process_started=psutil.Process(child.pid).create_time())
    assert holder.is_running()
    child.kill()
    # Waits for the death and leaves the zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not holder.is_running()
    child.wait()
    assert not holder.is_running()
