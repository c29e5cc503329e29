"""Numbers with their nouns."""

import pytest

from embedmill.plain_numbers import agreed, number_of


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 tries"), (1, "1 try"), (2, "2 tries"), (1337, "1,337 tries")]
)
def test_a_noun_has_the_form_of_its_number(number, said):
    assert number_of(number, "try", "tries") == said


def test_most_nouns_take_an_s():
    assert [number_of(number, "dead letter") for number in (1, 3)] == [
        "1 dead letter",
        "3 dead letters",
    ]


def test_a_verb_agrees_with_the_number():
    assert [agreed(number, "is", "are") for number in (0, 1, 2)] == ["are", "is", "are"]
