"""What a contender has stored, read with Qdrant's own client; prints it as one line of JSON.

Usage: ``python read_points.py STATE_FOLDER HOW_MANY``
"""

from __future__ import annotations

import json
import sys
from typing import Any

from qdrant_client import QdrantClient


def main() -> None:
    """Count the points; show some with their texts. Their ids are random, and so is the choice."""
    state, how_many = sys.argv[1:]
    client = QdrantClient(path=f"{state}/qdrant")
    found, _ = client.scroll("bench", limit=int(how_many), with_vectors=True)
    answer = {
        "count": client.count("bench").count,
        "texts": [text_of(point.payload or {}) for point in found],
        "vectors": [point.vector for point in found],
    }
    client.close()
    print(json.dumps(answer))


def text_of(payload: dict[str, Any]) -> str:
    """The chunk, wherever the framework puts it."""
    if "_node_content" in payload:
        return str(json.loads(payload["_node_content"])["text"])
    return str(next(payload[key] for key in ("page_content", "content", "text") if key in payload))


if __name__ == "__main__":
    main()
