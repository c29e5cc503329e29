"""The command line with embedders that take their time and keep a log: what the tests kill."""

import sys

import pipelines.pools
from embedmill.testing.worker_faults import Faults, Faulty
from pipelines.cli import app

embed_log, pause_s, *arguments = sys.argv[1:]
faults = Faults(pause_s=float(pause_s), embed_log=embed_log)
pipelines.pools.EmbedWorker = Faulty(pipelines.pools.EmbedWorker, faults)
app(arguments)
