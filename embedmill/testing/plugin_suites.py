"""The contract suites over every adapter that is installed beside embedmill's own.

For whoever writes one::

    pytest --pyargs embedmill.testing.plugin_suites

runs them over ``ProviderPlugin.examples`` and ``StorePlugin.example`` of all installed packages. A
plugin without examples is reported as a failure: nothing would have been checked.
"""
# ruff: noqa: D102 (the name of a test says what it checks)

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import embedmill.settings  # noqa: F401 - sorts out the kinds that are embedmill's own
from embedmill.embedder import Embedder
from embedmill.plugins import PROVIDERS, STORES, found, plugin_problems
from embedmill.testing.counting_store_contract import OpenStore
from embedmill.testing.embedder_contract import CHECKS
from embedmill.testing.vector_store_contract import VectorStoreContract


def test_every_installed_plugin_can_be_used() -> None:
    """None is broken, or wants a name that is taken."""
    problems = plugin_problems()
    # In words of its own: pytest explains no bare assertion of a package that is installed.
    assert not problems, "; ".join(problems)


@pytest.mark.parametrize("kind", sorted(found(PROVIDERS).by_kind))
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_provider_keeps_the_contract(kind: str, check: Callable[[Embedder], None]) -> None:
    """Every check of the embedder contract, on every example."""
    plugin = found(PROVIDERS).by_kind[kind]
    assert plugin.examples, f"{kind} has no examples to check"
    for settings in plugin.examples:
        check(plugin.build(settings, plugin.recipe(settings, "cosine")))


@pytest.mark.parametrize("kind", sorted(found(PROVIDERS).by_kind))
def test_a_provider_says_the_same_window_twice(kind: str) -> None:
    """What chunks are cut by is the window of the recipe."""
    plugin = found(PROVIDERS).by_kind[kind]
    for settings in plugin.examples:
        assert plugin.window(settings).size == plugin.recipe(settings, "cosine").max_tokens


class TestStores(VectorStoreContract):
    """The store contract, for every kind."""

    @pytest.fixture(params=sorted(found(STORES).by_kind))
    def open_store(self, request: pytest.FixtureRequest, tmp_path: Path) -> OpenStore:
        plugin: Any = found(STORES).by_kind[request.param]
        assert plugin.example, f"{request.param} has no example to check"
        settings = plugin.example(tmp_path)
        return lambda: plugin.open(settings)
