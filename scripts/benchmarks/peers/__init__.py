"""Ingests beside those of other frameworks, each in an environment of its own."""
