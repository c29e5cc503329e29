"""Providers of embedding jobs."""
