"""A cluster of three nodes on this machine, of which one is killed in the middle of a run.

Arguments: settings file. Prints the report of the run and which node was lost.
"""

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

# A node counts as dead after three seconds of silence, not fourteen.
os.environ.update({"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"})
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="embedmill-nodes-", dir="/tmp")

from ray.cluster_utils import Cluster

import pipelines.pools
from actors.actor_pool import RayExecutor
from actors.ray_session import RaySession
from embedmill.settings_file import load_settings
from embedmill.testing.worker_faults import Faults, Faulty
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

NODE = {"object_store_memory": 100 * 2**20}


def main():
    faults = Faults(pause_s=0.2)
    pipelines.pools.EmbedWorker = Faulty(pipelines.pools.EmbedWorker, faults)
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **NODE}
    )
    try:
        nodes = [cluster.add_node(num_cpus=2, **NODE) for _ in range(2)]
        cluster.wait_for_nodes(60)
        session = RaySession(address=cluster.address)
        executor = RayExecutor(session)
        lost = []

        def lose_one(progress):
            actor = executor._actors.get(("embed", 0))
            if progress.chunks and not lost and actor is not None and actor.process is not None:
                node = next(node for node in nodes if node.node_id == actor.process[1])
                cluster.remove_node(node, allow_graceful=False)
                lost.append(node.node_id)

        settings = load_settings(Path(sys.argv[1]), [])
        try:
            report = ingest(settings, executor, RunOptions(on_progress=lose_one))
        finally:
            executor.close()
            session.close()
        sys.stdout.write(json.dumps({"status": report.status, "lost": len(lost)}) + "\n")
    finally:
        cluster.shutdown()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


main()
