"""What is on a local disk survives a loss of power only once it was synced."""

from __future__ import annotations

import os
from pathlib import Path


def sync_path(path: Path) -> None:
    """Make what a file holds survive a loss of power; of a folder, the names in it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
