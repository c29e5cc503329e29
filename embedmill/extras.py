"""What is installed: imports that an optional part brings, and which embedmill this is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from embedmill.errors import MissingExtraError


@contextmanager
def extra(what: str, install: str, modules: tuple[str, ...]) -> Iterator[None]:
    """Say what to install when one of ``modules`` is not there; else nothing is caught.

    Args:
        what: needs it: ``this store``.
        install: what to type.
        modules: that are imported within.

    Raises:
        MissingExtraError: one is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in modules:
            raise
        raise MissingExtraError(
            f"{what} needs the module {error.name}, which is not installed",
            hint=install,
        ) from error


def release() -> str:
    """Which embedmill this is; what a Ray job has uploaded is not installed where it runs."""
    try:
        return version("embedmill")
    except PackageNotFoundError:
        return "of these files, not installed"
