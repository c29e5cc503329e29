"""Local models: one module for each library that computes."""
