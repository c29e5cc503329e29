"""A cluster on this machine, of which one node has another home, and any may be killed.

Arguments: settings file whose workspace is below the home; folder that is the home of a node;
settings file of a run that loses a node, by paths that all of them see. Prints the node of the
other home, the refusal of the first run and what it left in that home, then how the second one
ended and how many nodes it lost.
"""

import json
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

# Ray looks for its token in the home, and not all of the homes have one.
os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
# A node counts as dead after three seconds of silence, not fourteen.
os.environ.update({"RAY_health_check_period_ms": "1000", "RAY_health_check_failure_threshold": "3"})
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="embedmill-nodes-", dir="/tmp")

from ray.cluster_utils import Cluster

import pipelines.pools
from actors.actor_pool import RayExecutor
from actors.ray_session import RaySession
from embedmill.errors import RefusedError
from embedmill.settings_file import load_settings
from embedmill.testing.worker_faults import Faults, Faulty
from pipelines.ingest import ingest
from pipelines.run_options import RunOptions

NODE = {"object_store_memory": 100 * 2**20}


def main():
    config, home, other_config = sys.argv[1:]
    pipelines.pools.EmbedWorker = Faulty(pipelines.pools.EmbedWorker, Faults(pause_s=0.2))
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **NODE}
    )
    try:
        blind = cluster.add_node(num_cpus=2, env_vars={"HOME": home}, **NODE)
        nodes = [blind, cluster.add_node(num_cpus=2, **NODE)]
        cluster.wait_for_nodes(60)
        session = RaySession(address=cluster.address)
        try:
            refusal = refused(RayExecutor(session), Path(config))
            left = [path.name for path in Path(home).iterdir()]
            said = {"node": blind.node_id, "refusal": refusal, "left": left}
            lost = losing_one(RayExecutor(session), Path(other_config), cluster, nodes)
        finally:
            session.close()
        sys.stdout.write(json.dumps(said | lost) + "\n")
    finally:
        cluster.shutdown()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


def refused(executor, config):
    """What a run is told that a node cannot take part in."""
    try:
        ingest(load_settings(config, []), executor)
    except RefusedError as error:
        return str(error)
    finally:
        executor.close()
    return ""


def losing_one(executor, config, cluster, nodes):
    """A run that loses the node of its first embedder once it has vectors."""
    lost = []

    def lose_one(progress):
        actor = executor._actors.get(("embed", 0))
        if progress.chunks and not lost and actor is not None and actor.process is not None:
            node = next(node for node in nodes if node.node_id == actor.process[1])
            cluster.remove_node(node, allow_graceful=False)
            lost.append(node.node_id)

    try:
        report = ingest(load_settings(config, []), executor, RunOptions(on_progress=lose_one))
    finally:
        executor.close()
    return {"status": report.status, "lost": len(lost)}


main()
