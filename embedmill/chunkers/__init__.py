"""Chunkers: one document to chunks under a token limit."""
