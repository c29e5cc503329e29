"""What any embedder must do, as checks that take a live one.

Each check is a function of the embedder and raises ``AssertionError``; run all of :data:`CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from embedmill.embedder import Embedder, Vectors

TEXTS = (
    "Rivers carry sand to the sea.",
    "A contract fixes what both sides may rely on.",
    "short",
    "The violin was tuned before the concert began, as it should be.",
)
# Vectors of one text may differ by rounding with what else is in the batch; bfloat16 keeps 8 bits.
_SAME = 0.999


def cosines(left: Vectors, right: Vectors) -> Vectors:
    """Cosine of each row with the row beside it."""
    product = np.sum(left * right, axis=1)
    result: Vectors = product / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    return result


def check_one_finite_vector_for_each_text(embedder: Embedder) -> None:
    """The shape, the type and the norm are those of the recipe."""
    embedded = embedder.embed(TEXTS, "document")
    assert embedded.vectors.dtype == np.float32
    assert embedded.vectors.shape == (len(TEXTS), embedder.recipe.dimension)
    assert not embedded.failures
    norms = np.linalg.norm(embedded.vectors, axis=1)
    assert np.isfinite(norms).all()
    assert (norms > 0).all()
    if embedder.recipe.normalise:
        assert np.abs(norms - 1).max() < 1e-3


def check_no_texts_give_no_vectors(embedder: Embedder) -> None:
    """An empty call is answered in form."""
    embedded = embedder.embed([], "document")
    assert embedded.vectors.shape == (0, embedder.recipe.dimension)
    assert (dict(embedded.failures), embedded.token_count, embedded.truncated) == ({}, 0, 0)


def check_order_out_is_order_in(embedder: Embedder) -> None:
    """Whatever is sorted inside comes back in place."""
    texts = [TEXTS[row % len(TEXTS)] + " indeed" * (row % 7) for row in range(40)]
    forward = embedder.embed(texts, "document").vectors
    backward = embedder.embed(texts[::-1], "document").vectors
    assert cosines(forward, backward[::-1]).min() > _SAME


def check_a_text_alone_has_the_vector_it_has_among_others(embedder: Embedder) -> None:
    """Padding and neighbours do not show."""
    together = embedder.embed(TEXTS, "document").vectors
    for row, text in enumerate(TEXTS):
        alone = embedder.embed([text], "document").vectors
        assert cosines(alone, together[row : row + 1]).min() > _SAME


def check_a_blank_text_fails_alone(embedder: Embedder) -> None:
    """No filler vector, and the neighbours succeed."""
    embedded = embedder.embed([TEXTS[0], "", TEXTS[1], " \n\t", "\u2003"], "document")
    assert {row: error.code for row, error in embedded.failures.items()} == {
        1: "blank",
        3: "blank",
        4: "blank",
    }
    assert np.isnan(embedded.vectors[[1, 3, 4]]).all()
    assert np.isfinite(embedded.vectors[[0, 2]]).all()
    expected = embedder.embed(TEXTS[:2], "document")
    assert cosines(embedded.vectors[[0, 2]], expected.vectors).min() > _SAME
    assert embedded.token_count == expected.token_count


def check_control_strings_are_text(embedder: Embedder) -> None:
    """Marks of language models neither fail nor vanish."""
    plain = "before after"
    for mark in ("<|endoftext|>", "<|im_start|>", "[CLS]", "[SEP]", "[MASK]", "</s>", "<pad>"):
        embedded = embedder.embed([mark, f"before {mark} after", plain], "document")
        assert not embedded.failures
        assert cosines(embedded.vectors[1:2], embedded.vectors[2:3]).max() < _SAME


def check_text_over_the_window_is_cut_and_counted(embedder: Embedder) -> None:
    """What the model does not see has no influence, and the caller learns of it."""
    window = embedder.recipe.max_tokens
    long = "word " * (window + 50)
    embedded = embedder.embed([long + "alpha", long + "omega", TEXTS[0]], "document")
    assert embedded.truncated == 2
    assert cosines(embedded.vectors[:1], embedded.vectors[1:2]).min() > _SAME
    short = embedder.embed(TEXTS[:1], "document")
    assert embedded.token_count == 2 * window + short.token_count
    assert short.truncated == 0


def check_the_last_sentence_of_a_text_that_fits_counts(embedder: Embedder) -> None:
    """Nothing within the window is lost."""
    window = embedder.recipe.max_tokens
    fitting = "word " * (window // 2)
    embedded = embedder.embed([fitting + "The cat sleeps.", fitting + "Taxes rise."], "document")
    assert embedded.truncated == 0
    assert not np.array_equal(embedded.vectors[0], embedded.vectors[1])


def check_a_prompt_is_put_before_a_text_exactly_once(embedder: Embedder) -> None:
    """Both roles count their own prompt; equal prompts and input types give equal vectors."""
    recipe = embedder.recipe
    one_type = recipe.document_input_type == recipe.query_input_type
    document, query = (embedder.embed(TEXTS, role) for role in ("document", "query"))
    same = cosines(document.vectors, query.vectors).min() > _SAME
    assert same == (one_type and recipe.document_prompt == recipe.query_prompt)
    # A text that begins with the document prompt, embedded as a query with no prompt of its own.
    if one_type and not recipe.query_prompt:
        prompted = embedder.embed([recipe.document_prompt + text for text in TEXTS], "query")
        assert cosines(document.vectors, prompted.vectors).min() > _SAME
        assert document.token_count == prompted.token_count


def check_near_texts_are_nearer_than_others(embedder: Embedder) -> None:
    """Search works at all."""
    embedded = embedder.embed(TEXTS, "document").vectors
    asked = embedder.embed(["sand that rivers carry"], "query").vectors
    assert int(np.argmax(embedded @ asked[0])) == 0


CHECKS: tuple[Callable[[Embedder], None], ...] = (
    check_one_finite_vector_for_each_text,
    check_no_texts_give_no_vectors,
    check_order_out_is_order_in,
    check_a_text_alone_has_the_vector_it_has_among_others,
    check_a_blank_text_fails_alone,
    check_control_strings_are_text,
    check_text_over_the_window_is_cut_and_counted,
    check_the_last_sentence_of_a_text_that_fits_counts,
    check_a_prompt_is_put_before_a_text_exactly_once,
    check_near_texts_are_nearer_than_others,
)
