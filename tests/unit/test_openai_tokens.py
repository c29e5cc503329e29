"""Counting tokens: exactly with tiktoken's encodings, cautiously without."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.errors import RefusedError
from embedmill.openai_tokens import TokenEstimate, estimated_tokens, packing_counter, token_counter


@pytest.fixture(scope="module")
def encoding_file(tmp_path_factory):
    """Every byte a token, and two pairs."""
    pytest.importorskip("tiktoken")
    tokens = [bytes([byte]) for byte in range(256)] + [b"th", b"the"]
    lines = [base64.b64encode(token).decode() + f" {rank}\n" for rank, token in enumerate(tokens)]
    path = tmp_path_factory.mktemp("encoding") / "small.tiktoken"
    path.write_text("".join(lines))
    return path


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("", 0),
        ("The quick brown fox jumps over the lazy dog.", 10),
        ("for (int i = 0; i < 10; i++) { sum += a[i]; }", 23),
        ("3.14159265358979", 6),
        ("\u6771\u4eac\u90fd\u306e\u4eba\u53e3\u306f", 8),
        ("\U0001f600" * 5, 10),
        ("!?" * 50, 50),
    ],
)
def test_the_estimate_is_rather_too_high(text, least):
    # At least what cl100k_base counts for these, by its published encoding.
    assert least <= estimated_tokens(text) <= max(1, 3 * least, len(text.encode()))


@given(text=st.text(max_size=80), more=st.text(max_size=9))
def test_the_estimate_grows_with_the_text_and_never_exceeds_its_bytes(text, more):
    assert estimated_tokens(text) <= estimated_tokens(text + more)
    assert estimated_tokens(text) <= len(text.encode("utf-8", "surrogatepass"))


@given(text=st.text(max_size=80), size=st.integers(0, 40))
def test_a_cut_is_the_longest_beginning_that_fits(text, size):
    cut = TokenEstimate().cut(text, size)
    assert text.startswith(cut)
    assert estimated_tokens(cut) <= size
    assert cut == text or estimated_tokens(text[: len(cut) + 1]) > size


def test_an_encoding_comes_from_a_file_without_any_network(encoding_file):
    counter = token_counter(str(encoding_file))
    assert counter.count(["the", "then", "<|endoftext|>", ""]) == [1, 2, 13, 0]
    assert counter.sizer("then") == 2
    assert counter.fingerprint == token_counter(str(encoding_file)).fingerprint
    assert counter.fingerprint != TokenEstimate.fingerprint


def test_a_cut_through_a_character_leaves_it_out(encoding_file):
    counter = token_counter(str(encoding_file))
    assert counter.cut("the \u20ac sign", 3) == "the "
    assert counter.cut("the \u20ac sign", 5) == "the \u20ac"
    assert counter.cut("short", 100) == "short"


def test_a_counter_that_cannot_be_had_is_refused_and_only_packing_goes_on(tmp_path, monkeypatch):
    pytest.importorskip("tiktoken")
    broken = tmp_path / "broken.tiktoken"
    broken.write_text("no encoding\n")
    for name in (str(tmp_path / "missing.tiktoken"), str(broken), "no_such_encoding"):
        with pytest.raises(RefusedError, match=r"embedder\.tokenizer"):
            token_counter(name)
        assert packing_counter(name).fingerprint == TokenEstimate.fingerprint


def test_a_download_that_fails_names_the_other_ways(tmp_path, monkeypatch):
    pytest.importorskip("tiktoken")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    # Nobody listens there: no test reaches the network.
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(RefusedError) as refused:
        token_counter("p50k_base")
    assert "estimate" in refused.value.hint
