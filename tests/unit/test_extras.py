"""A part of the installation that is missing says how it is installed."""

import sys
from importlib.metadata import PackageNotFoundError

import pytest

from embedmill import extras
from embedmill.errors import MissingExtraError
from embedmill.extras import extra
from embedmill.job_assembly import build_provider
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe


def test_a_missing_module_is_named_with_its_install_line():
    with (
        pytest.raises(MissingExtraError, match="needs the module no_such,") as missing,
        extra("this embedder", "pip install 'embedmill[some]'", ("no_such",)),
    ):
        import no_such  # noqa: F401
    assert missing.value.hint == "pip install 'embedmill[some]'"


def test_another_missing_module_is_not_taken_for_it():
    with pytest.raises(ModuleNotFoundError), extra("this embedder", "x", ("no_such",)):
        import no_such_either  # noqa: F401


def test_jobs_of_a_provider_whose_client_is_missing_name_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)
    monkeypatch.delitem(sys.modules, "embedmill.batch_providers.openai", raising=False)
    settings = OpenAIEmbedderSettings(kind="openai")
    with pytest.raises(MissingExtraError, match="needs the module openai,") as missing:
        build_provider(settings, openai_recipe(settings, "cosine"))
    assert missing.value.hint == "pip install 'embedmill[openai]'"


def test_what_is_not_installed_says_so(monkeypatch):
    def version(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr(extras, "version", version)
    assert extras.release() == "of these files, not installed"
