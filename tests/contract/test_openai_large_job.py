"""A large job against a fake server in a process of its own, and that process itself."""

import signal
import subprocess
import sys
import tracemalloc
import urllib.error
import urllib.request

import orjson
import pytest

from embedmill.batch_providers.openai import OpenAIBatchProvider
from embedmill.batch_providers.openai_limits import OPENAI_LIMITS, request_template
from embedmill.openai_settings import OpenAIEmbedderSettings, openai_recipe
from embedmill.request_file import RequestWriter, lint
from embedmill.testing.fault_plan import load_faults
from embedmill.testing.openai_faults import Fault

# Few rows of many components: as large a file, and quicker to make and to read.
ROWS, DIMENSION = 2_000, 1_280


@pytest.fixture
def serve():
    """Starts the server with some arguments; its base URL."""
    running = []

    def start(*arguments):
        process = subprocess.Popen(
            [sys.executable, "-m", "embedmill.testing.openai_server", *arguments],
            stdout=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process.stdout.readline().strip()

    yield start
    for process in running:
        process.send_signal(signal.SIGTERM)
    with_output = [(process.wait(timeout=60), process.stdout.close()) for process in running]
    assert [code for code, _ in with_output] == [0] * len(running)


def test_the_results_of_a_large_job_never_stand_in_memory_whole(serve, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_OPENAI_KEY", "sk-any")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    base_url = serve("--polls", "0")
    settings = OpenAIEmbedderSettings(
        kind="openai",
        dimensions=DIMENSION,
        api_key="${FAKE_OPENAI_KEY}",
        base_url=base_url,
        tokenizer="estimate",
    )
    recipe = openai_recipe(settings, "cosine")
    template = request_template(recipe)
    path = tmp_path / "large.jsonl"
    with RequestWriter(path, job_key="big", template=template, limits=OPENAI_LIMITS) as writer:
        for row in range(ROWS):
            assert writer.add(f"r{row}", [f"the text of row {row}"], [7])
        file = writer.finish()
    assert lint(path, template, OPENAI_LIMITS) == []
    provider = OpenAIBatchProvider(settings, recipe, limits=OPENAI_LIMITS)
    job = provider.submit(file, job_key="big", fingerprint=file.fingerprint)
    assert provider.state(job).status == "succeeded"
    seen = bytearray(ROWS)
    tracemalloc.start()
    for outcome in provider.outcomes(job):
        assert outcome.vector is not None
        seen[int(outcome.custom_id[1:])] += 1
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    provider.close()
    assert seen == b"\1" * ROWS
    # The vectors alone are 10 MB, the file 15.
    assert peak < 8 * 2**20, peak
    with urllib.request.urlopen(base_url.removesuffix("/v1") + "/fake/bill") as reply:
        bill = orjson.loads(reply.read())
    assert (bill["texts"], bill["texts_charged_more_than_once"]) == (ROWS, 0)


def test_the_server_reads_its_faults_from_a_file(serve, tmp_path):
    faults = tmp_path / "faults.yaml"
    faults.write_text("- {at: files.list, do: error, value: '503'}\n")
    base_url = serve("--faults", str(faults))
    request = urllib.request.Request(base_url + "/files", headers={"Authorization": "Bearer x"})
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(request)
    assert error.value.code == 503
    error.value.close()
    with urllib.request.urlopen(request) as reply:
        assert orjson.loads(reply.read())["data"] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- {at: nowhere, do: error}", "nowhere"),
        ("- {at: job, do: error, nth: 1}", "nth"),
        ("- [", "flow"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(tmp_path, text, said):
    path = tmp_path / "faults.yaml"
    path.write_text(text)
    with pytest.raises(ValueError, match=said):
        load_faults(path, Fault)
