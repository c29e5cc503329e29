"""Convert the model for sentence-transformers' OpenVINO backend, once, before anything is measured.

Usage: ``python export_openvino.py MODEL FOLDER``
"""

from __future__ import annotations

import sys

from sentence_transformers import SentenceTransformer


def main() -> None:
    """Convert and save."""
    model, folder = sys.argv[1:]
    SentenceTransformer(model, backend="openvino").save_pretrained(folder)


if __name__ == "__main__":
    main()
