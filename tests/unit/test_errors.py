"""Errors travel between processes and say what the caller should do next."""

import inspect
import pickle

import pytest

from embedmill import errors
from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    PermanentError,
    RefusedError,
    StopRunError,
    TransientError,
)

BRANCHES = (PermanentError, TransientError, OutcomeUnknownError, RefusedError, StopRunError)
CLASSES = [
    cls
    for _, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, EmbedmillError) and cls is not EmbedmillError
]
# A value of each keyword that a class may have, none of them its default.
FACTS = {"code": "other", "hint": "type this", "retry_after": 2.5, "running": False}


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_stands_under_exactly_one_branch(cls):
    assert sum(issubclass(cls, branch) for branch in BRANCHES) == 1


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_survives_pickling_with_its_facts(cls):
    names = [name for name in inspect.signature(cls).parameters if name != "message"]
    error = cls("what happened", **{name: FACTS[name] for name in names})
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == "what happened"
    assert {name: getattr(again, name) for name in names} == {n: FACTS[n] for n in names}


@pytest.mark.parametrize("cls", CLASSES)
def test_a_message_alone_makes_an_error(cls):
    error = cls("what happened")
    assert error.code
    assert error.hint == ""


def test_classes_have_codes_of_their_own():
    codes = [cls.code for cls in CLASSES]
    assert len(set(codes)) == len(codes)
