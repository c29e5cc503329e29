"""Names in Weaviate: no two of ours meet, and what can be read back is read back."""

import re

import pytest
from hypothesis import given, strategies

from embedmill.vector_stores.weaviate_names import NO_TEXT, class_name, name_of_class, tenant_name

NAMES = strategies.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}", fullmatch=True)


@given(NAMES)
def test_a_name_comes_back_and_is_one_that_the_server_takes(name):
    theirs = class_name(name)
    assert re.fullmatch(r"[A-Z][_0-9A-Za-z]{0,254}", theirs)
    assert name_of_class(theirs) == name


@given(NAMES, NAMES)
def test_no_two_names_meet_even_where_case_does_not_count(one, other):
    assert (class_name(one).lower() == class_name(other).lower()) == (one == other)


def test_names_read_well():
    assert class_name("articles-md-512") == "Embedmill_articles_md_512"
    assert class_name("Zoo_1.5") == "Embedmill_zczoozu1zp5"


@pytest.mark.parametrize("name", ["A" * 200, "no/such", "ü"])
def test_a_name_that_does_not_fit_is_hashed(name):
    assert re.fullmatch(r"Embedmill_zh[0-9a-f]{32}", class_name(name))
    assert name_of_class(class_name(name)) is None


@pytest.mark.parametrize("theirs", ["Articles", "Embedmill_zx", "Embedmill_zc1"])
def test_a_name_of_somebody_else_is_none_of_ours(theirs):
    assert name_of_class(theirs) is None


def test_tenants_are_names_that_the_server_takes_and_do_not_meet():
    values = ["acme", "Acme", "a b", "zürich", "", "_other", "a" * 61, "_none"]
    names = [tenant_name(value) for value in values]
    assert len(set(names)) == len(values)
    assert NO_TEXT not in names
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
    assert {tenant_name(value) for value in (None, 3, True, ["acme"])} == {NO_TEXT}
