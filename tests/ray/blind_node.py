"""A cluster of two nodes on this machine, of which one has another home.

Arguments: settings file whose workspace is below the home; folder that is the home of the node.
Prints the node and the refusal of a run.
"""

import json
import os
import secrets
import shutil
import sys
import tempfile
from pathlib import Path

# Ray looks for its token in the home, and only one of the homes has one.
os.environ.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)})
os.environ["RAY_TMPDIR"] = tempfile.mkdtemp(prefix="embedmill-nodes-", dir="/tmp")

from ray.cluster_utils import Cluster

from actors.actor_pool import RayExecutor
from actors.ray_session import RaySession
from embedmill.errors import RefusedError
from embedmill.settings_file import load_settings
from pipelines.ingest import ingest

NODE = {"object_store_memory": 100 * 2**20}


def main():
    config, home = sys.argv[1:]
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, **NODE}
    )
    try:
        node = cluster.add_node(num_cpus=1, env_vars={"HOME": home}, **NODE)
        cluster.wait_for_nodes(60)
        session = RaySession(address=cluster.address)
        executor = RayExecutor(session)
        said = {"node": node.node_id}
        try:
            ingest(load_settings(Path(config), []), executor)
        except RefusedError as error:
            said["refusal"] = str(error)
        finally:
            executor.close()
            session.close()
        sys.stdout.write(json.dumps(said) + "\n")
    finally:
        cluster.shutdown()
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)


main()
