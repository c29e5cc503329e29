"""Files of requests: what the writer writes, the linter takes, and nothing else."""

from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.batch_provider import BatchLimits
from embedmill.errors import PermanentError, RefusedError
from embedmill.request_file import RequestTemplate, RequestWriter, lint, require_clean

TEMPLATE = RequestTemplate(
    {
        "method": "POST",
        "url": "/v1/embeddings",
        "body": {"model": "some-model", "encoding_format": "base64", "dimensions": 8},
    }
)
OPEN = BatchLimits()
TIGHT = BatchLimits(
    requests_per_file=3,
    inputs_per_file=5,
    bytes_per_file=1000,
    inputs_per_request=2,
    tokens_per_input=10,
    tokens_per_request=15,
    custom_id_bytes=8,
)


def written(path, requests, limits=OPEN):
    with RequestWriter(path, job_key="key", template=TEMPLATE, limits=limits) as writer:
        for custom_id, texts in requests.items():
            assert writer.add(custom_id, texts, [1] * len(texts))
        return writer.finish()


texts = st.text(st.characters(codec="utf-8"), min_size=1).filter(lambda text: not text.isspace())


@given(groups=st.lists(st.lists(texts, min_size=1, max_size=4), min_size=1, max_size=8))
def test_what_is_written_is_read_back_as_it_was(tmp_path_factory, groups):
    path = tmp_path_factory.mktemp("requests") / "file.jsonl"
    requests = {f"c{number}": group for number, group in enumerate(groups)}
    file = written(path, requests)
    lines = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    assert {line["custom_id"]: line["body"]["input"] for line in lines} == requests
    body = TEMPLATE.constant["body"]
    assert all(line["body"] == {**body, "input": line["body"]["input"]} for line in lines)
    assert lint(path, TEMPLATE, OPEN) == []
    assert (file.requests, file.inputs) == (len(groups), sum(map(len, groups)))
    assert file.bytes == path.stat().st_size
    assert file.tokens == file.inputs


def test_equal_requests_make_equal_files_and_others_do_not(tmp_path):
    one, two, three = (
        written(tmp_path / f"{number}.jsonl", requests).fingerprint
        for number, requests in enumerate(({"a": ["x"]}, {"a": ["x"]}, {"a": ["y"]}))
    )
    assert one == two != three


def test_a_full_file_takes_no_more_and_is_unharmed(tmp_path):
    path = tmp_path / "file.jsonl"
    with RequestWriter(path, job_key="key", template=TEMPLATE, limits=TIGHT) as writer:
        assert writer.add("a", ["one", "two"], [1, 1])
        assert writer.add("b", ["one", "two"], [1, 1])
        assert not writer.add("c", ["one", "two"], [1, 1])
        assert writer.add("c", ["one"], [1])
        assert not writer.add("d", ["one"], [1])
        file = writer.finish()
    assert (file.requests, file.inputs) == (3, 5)
    assert lint(path, TEMPLATE, TIGHT) == []


def test_bytes_and_tokens_fill_a_file_too(tmp_path):
    for limits in (BatchLimits(bytes_per_file=400), BatchLimits(enqueued_tokens=10)):
        path = tmp_path / "file.jsonl"
        with RequestWriter(path, job_key="key", template=TEMPLATE, limits=limits) as writer:
            assert writer.add("a", ["x" * 100], [6])
            assert not writer.add("b", ["x" * 200], [6])
            writer.finish()


@pytest.mark.parametrize(
    ("texts", "tokens", "code"),
    [
        (["one", "two", "three"], [1, 1, 1], "too-large"),
        (["one"], [11], "too-large"),
        (["one", "two"], [8, 8], "too-large"),
        (["x" * 1000], [1], "too-large"),
        (["one", " \n"], [1, 1], "blank"),
        (["half \ud800"], [1], "encoding"),
    ],
)
def test_a_request_that_no_file_can_hold_is_refused(tmp_path, texts, tokens, code):
    with RequestWriter(
        tmp_path / "file.jsonl", job_key="key", template=TEMPLATE, limits=TIGHT
    ) as writer:
        with pytest.raises(PermanentError) as refused:
            writer.add("a", texts, tokens)
        assert refused.value.code == code
        assert writer.add("a", ["fine"], [1])


@pytest.mark.parametrize("custom_id", ["", "u\u00fc", "new\nline", "ninechars", "used"])
def test_an_id_that_is_no_id_is_a_mistake_of_the_caller(tmp_path, custom_id):
    with RequestWriter(
        tmp_path / "file.jsonl", job_key="key", template=TEMPLATE, limits=TIGHT
    ) as writer:
        writer.add("used", ["one"], [1])
        with pytest.raises(ValueError, match="custom id"):
            writer.add(custom_id, ["one"], [1])


def record(**changes):
    return {**TEMPLATE.constant, "custom_id": "a", **changes}


def body(**changes):
    return {**TEMPLATE.constant["body"], "input": ["x"], **changes}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{", "line 1"),
        (b"[]", "no object"),
        (record(body=body(), url="/v1/other"), "url is '/v1/other'"),
        (record(body=body(), method="GET"), "method"),
        (record(body=body(model="another")), "another"),
        (record(body=body(user="extra")), "extra"),
        (record(body=body(), extra=1), "extra"),
        (record(body=body(input=[])), "not a list of texts"),
        (record(body=body(input="x")), "not a list of texts"),
        (record(body=body(input=["x", ""])), "blank"),
        (record(body=body(input=["x", 1])), "blank"),
        (record(body=body(input=["x"] * 3)), "3 texts"),
        (record(body=body(), custom_id=None), "is missing"),
        (record(body=body(), custom_id="u\u00fc"), "ASCII"),
        (record(body=body(), custom_id="ninechars"), "longer"),
    ],
)
def test_the_linter_names_a_bad_line(tmp_path, line, said):
    path = tmp_path / "file.jsonl"
    path.write_bytes((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n")
    problems = lint(path, TEMPLATE, TIGHT)
    assert len(problems) == 1
    assert said in problems[0]
    with pytest.raises(RefusedError, match="is no file of requests"):
        require_clean(path, TEMPLATE, TIGHT)


def test_the_linter_sees_what_is_wrong_with_the_whole_file(tmp_path):
    path = tmp_path / "file.jsonl"
    written(path, {f"c{number}": ["x", "y"] for number in range(9)})
    tight = replace(TIGHT, bytes_per_file=10)
    problems = lint(path, TEMPLATE, tight)
    assert [problem.split(" ")[1] for problem in problems] == ["bytes,", "lines,", "texts,"]
    path.write_bytes(path.read_bytes() + path.read_bytes())
    assert sum("used twice" in problem for problem in lint(path, TEMPLATE, OPEN)) == 9
    path.write_bytes(b"")
    assert lint(path, TEMPLATE, OPEN) == ["the file is empty"]
    path.write_bytes(b"{\n" * 100)
    assert len(lint(path, TEMPLATE, OPEN)) == 20
