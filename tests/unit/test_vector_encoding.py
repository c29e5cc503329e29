"""Vectors as providers encode them."""

import base64

import numpy as np
import pytest

from embedmill.embedder import norms_of
from embedmill.testing.fake_vectors import encoded
from embedmill.vector_encoding import from_bytes, from_numbers, normalised

VECTOR = np.array([0.5, -0.25, 0.125, -1.0, 1.0, 0.75, -0.5, 0.25], np.float32)


@pytest.mark.parametrize("kind", ["float", "int8", "uint8", "binary", "ubinary"])
def test_bytes_and_numbers_say_the_same_and_the_signs_survive(kind):
    packed = from_bytes(base64.b64decode(encoded(VECTOR, kind, as_base64=True)), kind)
    listed = from_numbers(encoded(VECTOR, kind, as_base64=False), kind)
    assert np.array_equal(packed, listed)
    assert packed.dtype == np.float32
    assert np.array_equal(np.sign(packed), np.sign(VECTOR))


def test_the_coarser_the_encoding_the_further_from_the_vector():
    def distance(kind):
        got = from_numbers(encoded(VECTOR, kind, as_base64=False), kind)
        return np.linalg.norm(normalised(got[None])[0] - normalised(VECTOR[None])[0])

    assert distance("float") == 0
    assert 0 < distance("int8") == distance("uint8") < 0.01 < distance("binary")
    assert distance("binary") == distance("ubinary")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ("text", "float"),
        ({}, "float"),
        ([[1.0], "x"], "float"),
        ([1.5, 2], "int8"),
        ([128], "int8"),
        ([-1], "ubinary"),
        ([None, 1], "uint8"),
        (["a"], "binary"),
    ],
)
def test_what_is_no_such_vector_is_refused(values, kind):
    with pytest.raises(ValueError, match=r"."):
        from_numbers(values, kind)


def test_bytes_that_hold_no_whole_number_of_floats_are_refused():
    with pytest.raises(ValueError, match="5 bytes"):
        from_bytes(b"12345", "float")


def test_rows_without_a_norm_stay_as_they_are():
    rows = np.array([[3, 4], [0, 0], [np.nan, 1], [np.inf, 1]], np.float32)
    got = normalised(rows)
    assert np.allclose(got[0], [0.6, 0.8])
    assert np.array_equal(got[1:], rows[1:], equal_nan=True)
    assert got.dtype == np.float32


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e18, 1e25])
def test_norms_are_right_whatever_the_scale(scale):
    rows = np.array([[3, 4], [-0.6, 0.8]], np.float32) * np.float32(scale)
    assert np.allclose(norms_of(rows) / scale, [5, 1], rtol=1e-6)


def test_norms_of_what_is_no_vector():
    rows = np.array([[np.nan, 1], [np.inf, 1], [0, 0]], np.float32)
    norms = norms_of(rows)
    assert np.isfinite(norms).tolist() == [False, False, True]
    assert norms[2] == 0
