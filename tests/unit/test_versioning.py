"""Which version a run continues: the one with the very same recipe, or none."""

import json
from dataclasses import fields, replace

import pytest

from embedmill.chunkers.library import LIBRARY
from embedmill.errors import RecipeMismatchError, RefusedError
from embedmill.manifest import IndexVersion, ManifestState
from embedmill.recipe import ChunkingRecipe, EmbeddingRecipe
from embedmill.settings import Settings
from embedmill.versioning import version_for_ingest, version_for_reembed

CHUNKING = ChunkingRecipe("text", 1, "lib 1", "words", 256, 24, "refuse", "p1")
EMBEDDING = EmbeddingRecipe(
    "hashing", "hashing", "r1", 8, "float32", True, "d: ", "q: ", 512, "cosine"
)
NOW = "2031-01-01T00:00:00+00:00"
HASHING = {"kind": "hashing"}


def settings(embedder=None, **more):
    values = {
        "index": "an-index",
        "workspace": "unused",
        "source": {"kind": "table", "path": "unused"},
        "chunker": {"kind": "text"},
        "embedder": embedder or HASHING,
        "store": {"kind": "memory"},
        "shard_count": 4,
        **more,
    }
    return Settings.model_validate_json(json.dumps(values))


def version(number=1, state="published", embedding=EMBEDDING):
    return IndexVersion(number, state, CHUNKING, embedding, f"an-index--v{number}", 4, NOW)


def state_of(*versions):
    return ManifestState(len(versions), versions)


def test_an_index_without_versions_gets_its_first():
    made = version_for_ingest(settings(), state_of(), (CHUNKING, EMBEDDING), now=NOW)
    assert (made.name, made.state, made.collection) == ("v1", "building", "an-index--v1")
    assert (made.chunking, made.embedding, made.shard_count) == (CHUNKING, EMBEDDING, 4)


def test_a_run_continues_the_version_that_readers_see():
    state = state_of(version(1), version(2, "building"))
    assert version_for_ingest(settings(), state, (CHUNKING, EMBEDDING), now=NOW).number == 1


def test_an_index_that_was_never_complete_is_continued():
    state = state_of(version(1, "building"))
    assert version_for_ingest(settings(), state, (CHUNKING, EMBEDDING), now=NOW).number == 1


def another(value):
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int) else f"{value}-2"


@pytest.mark.parametrize("recipe", [CHUNKING, EMBEDDING], ids=["chunking", "embedding"])
def test_every_difference_of_a_recipe_is_refused_with_both_values(recipe):
    for field in fields(recipe):
        before = getattr(recipe, field.name)
        changed = replace(recipe, **{field.name: another(before)})
        wanted = (changed, EMBEDDING) if recipe is CHUNKING else (CHUNKING, changed)
        with pytest.raises(RecipeMismatchError, match="nothing was changed") as caught:
            version_for_ingest(settings(), state_of(version()), wanted, now=NOW)
        assert f"{field.name}: {before!r} -> {another(before)!r}" in str(caught.value)
        assert caught.value.hint


def test_all_differences_are_named_at_once():
    wanted = (replace(CHUNKING, overlap=0), replace(EMBEDDING, model="other", dimension=9))
    with pytest.raises(RecipeMismatchError) as caught:
        version_for_ingest(settings(), state_of(version()), wanted, now=NOW)
    for part in ("overlap: 24 -> 0", "model: 'hashing' -> 'other'", "dimension: 8 -> 9"):
        assert part in str(caught.value)


def test_another_number_of_shards_is_refused_with_the_setting_to_write():
    with pytest.raises(RefusedError, match=r"4 shards for its whole life.*say 8") as caught:
        version_for_ingest(
            settings(shard_count=8), state_of(version()), (CHUNKING, EMBEDDING), now=NOW
        )
    assert caught.value.hint == "set shard_count: 4"


LOCAL = {"kind": "sentence_transformers", "model": "some/model"}


def test_a_numeric_type_that_the_settings_leave_open_stays_as_it_was():
    built = version(embedding=replace(EMBEDDING, dtype="bfloat16"))
    continued = version_for_ingest(
        settings(embedder=LOCAL), state_of(built), (CHUNKING, EMBEDDING), now=NOW
    )
    assert continued.embedding.dtype == "bfloat16"


def test_a_numeric_type_that_the_settings_name_is_a_difference_like_any_other():
    built = version(embedding=replace(EMBEDDING, dtype="bfloat16"))
    chosen = settings(embedder={**LOCAL, "dtype": "float32"})
    with pytest.raises(RecipeMismatchError, match="dtype: 'bfloat16' -> 'float32'"):
        version_for_ingest(chosen, state_of(built), (CHUNKING, EMBEDDING), now=NOW)


BY_LIBRARY = replace(CHUNKING, library=LIBRARY)
BY_BORDERS = replace(CHUNKING, library="token borders 1")


def cut_by(chunking):
    return state_of(replace(version(), chunking=chunking))


@pytest.mark.parametrize("encoding", ["None", "cp1252"])
def test_an_index_whose_recipe_names_a_fallback_encoding_is_continued_with_any(encoding):
    named = replace(CHUNKING, parser=f"text-1 html-1 fallback-{encoding}")
    existing = replace(version(), chunking=named)
    wanted = replace(CHUNKING, parser="text-1 html-1")
    found = version_for_ingest(settings(), state_of(existing), (wanted, EMBEDDING), now=NOW)
    assert found.chunking == named
    newer = replace(CHUNKING, parser="text-1 html-2"), EMBEDDING
    with pytest.raises(RecipeMismatchError, match="html-2"):
        version_for_ingest(settings(), state_of(existing), newer, now=NOW)


def test_an_index_of_the_earlier_splitter_is_continued():
    state = cut_by(BY_LIBRARY)
    assert version_for_ingest(settings(), state, (BY_BORDERS, EMBEDDING), now=NOW).number == 1


def test_an_index_of_the_earlier_splitter_is_not_continued_with_the_new_one():
    chosen = settings(chunker={"kind": "text", "splitter": "borders"})
    with pytest.raises(RecipeMismatchError, match="-> 'token borders 1'"):
        version_for_ingest(chosen, cut_by(BY_LIBRARY), (BY_BORDERS, EMBEDDING), now=NOW)
    made = version_for_reembed(chosen, cut_by(BY_LIBRARY), (BY_BORDERS, EMBEDDING), now=NOW)
    assert made.chunking == BY_BORDERS


def test_another_model_over_the_same_chunks_leaves_them_as_they_are():
    wanted = BY_BORDERS, replace(EMBEDDING, model="another")
    made = version_for_reembed(settings(), cut_by(BY_LIBRARY), wanted, now=NOW)
    assert (made.chunking, made.embedding) == (BY_LIBRARY, wanted[1])


def test_chunks_that_are_made_anew_are_made_by_the_new_splitter():
    wanted = replace(BY_BORDERS, tokenizer="other words"), replace(EMBEDDING, model="another")
    made = version_for_reembed(settings(), cut_by(BY_LIBRARY), wanted, now=NOW)
    assert made.chunking == wanted[0]
