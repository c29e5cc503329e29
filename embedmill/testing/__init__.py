"""Fakes and conformance suites, for our tests and for rehearsals."""
