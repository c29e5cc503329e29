"""Measurements of the whole product, one module per verb of ``scripts/bench``."""
