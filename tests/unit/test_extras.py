"""A part of the installation that is missing says how it is installed."""

import pytest

from embedmill.errors import MissingExtraError
from embedmill.extras import extra


def test_a_missing_module_is_named_with_its_install_line():
    with (
        pytest.raises(MissingExtraError, match="needs the module no_such,") as missing,
        extra("this embedder", "'embedmill[some]'", ("no_such",)),
    ):
        import no_such  # noqa: F401
    assert missing.value.hint == "pip install 'embedmill[some]'"


def test_another_missing_module_is_not_taken_for_it():
    with pytest.raises(ModuleNotFoundError), extra("this embedder", "'x'", ("no_such",)):
        import no_such_either  # noqa: F401
