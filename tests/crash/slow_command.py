"""The command line with embedders that take their time and keep a log: what the tests kill.

Arguments: the log, seconds of a call, calls after which the others are held (or none), the command.
"""

import sys

import pipelines.pools
from embedmill.testing.worker_faults import Faults, Faulty
from pipelines.cli import app

embed_log, pause_s, held_after, *arguments = sys.argv[1:]
faults = Faults(
    pause_s=float(pause_s),
    embed_log=embed_log,
    held_after=int(held_after) if held_after else None,
)
pipelines.pools.EmbedWorker = Faulty(pipelines.pools.EmbedWorker, faults)
app(arguments)
