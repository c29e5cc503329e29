"""Embedding jobs at every provider: each fault, and a crash at each effect; one suite for all."""

import json
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("openai")
pytest.importorskip("fastavro")

from deaths import MOMENTS, dying_at
from job_rig import KEY, PROVIDERS, Rehearsals, template_of

from embedmill.errors import RefusedError, StopRunError
from embedmill.executor import InlineExecutor
from embedmill.job_cancelling import cancel_job
from embedmill.job_records import JobRecords
from embedmill.settings import Settings
from embedmill.testing.crash_points import Crash, Process
from pipelines.execution import RunOptions
from pipelines.ingest import ingest

TEXTS = ["one", "two", "three", "one", "four", "five"]
# What each provider calls the same thing.
_BATCHES = ("openai", "voyage", "cohere_batches")
UPLOAD = {
    **dict.fromkeys(("openai", "voyage"), "files.create"),
    **dict.fromkeys(("cohere", "cohere_batches"), "datasets.create"),
}
CREATE = {**dict.fromkeys(_BATCHES, "batches.create"), "cohere": "jobs.create"}
LIST = {**dict.fromkeys(_BATCHES, "batches.list"), "cohere": "jobs.list"}
POLL = {**dict.fromkeys(_BATCHES, "batches.get"), "cohere": "jobs.get"}
READ = {
    **dict.fromkeys(("openai", "voyage"), "files.content"),
    **dict.fromkeys(("cohere", "cohere_batches"), "datasets.part"),
}

PASSING = {
    "nothing": [],
    "upload: the reply is lost": [(UPLOAD, "drop-reply", {})],
    "upload: the server is in trouble": [(UPLOAD, "html-502", {"times": 2})],
    "upload: too much at once": [(UPLOAD, "rate-limit", {"value": "9", "times": 2})],
    "upload: the file is too large": [(UPLOAD, "too-large", {"times": 2})],
    "upload: the file is too large for a proxy": [(UPLOAD, "html-413", {})],
    "creation: the file is too large": [(CREATE, "too-large", {})],
    "creation: the reply is lost, the job exists": [(CREATE, "drop-reply", {})],
    "creation: the request is lost": [(CREATE, "drop", {})],
    "creation: a page of a proxy instead of a reply": [(CREATE, "html-200", {})],
    "creation: the server is in trouble": [(CREATE, "html-502", {"times": 2})],
    "creation: too much at once": [(CREATE, "rate-limit", {"times": 2})],
    "the reply and then the listing are lost": [
        (CREATE, "drop-reply", {}),
        (LIST, "html-502", {"times": 3}),
    ],
    "poll: no answers": [(POLL, "html-502", {"times": 6})],
    "poll: too much at once": [(POLL, "rate-limit", {"value": "30", "times": 3})],
    "poll: the reply is lost": [(POLL, "drop-reply", {"times": 2})],
    "poll: unknown for a moment": [(POLL, "not-found", {"times": 2})],
    "job: an unknown status": [("job", "stay", {"value": "paused", "count": 4})],
    "results: cut off twice": [(READ, "cut", {"count": 700, "times": 2})],
    "results: the connection is lost": [(READ, "drop", {"times": 2})],
    "results: a row is missing": [("job", "miss-rows", {})],
}
OF_ONE = {
    "openai": {
        "the job expires": [("job", "expire", {"count": 3})],
        "server errors": [("job", "fail-rows", {"count": 3})],
    },
    "voyage": {
        "the window closes": [("job", "expire", {"count": 3})],
        "server errors": [("job", "fail-rows", {"count": 3})],
        "the file is unknown at first": [("batches.create", "not-found", {"times": 2})],
    },
    "cohere": {
        "the dataset is too large": [
            ("datasets.create", "refuse-dataset", {"value": "The dataset exceeds 1.5 GB"})
        ],
        "a signed address has expired": [("datasets.part", "expired-link", {"times": 2})],
        "a part ends between two blocks": [("datasets.part", "short", {"count": 900})],
    },
    "cohere_batches": {
        "server errors": [("job", "fail-rows", {"count": 3})],
        "a signed address has expired": [("datasets.part", "expired-link", {"times": 2})],
        "a part ends between two blocks": [("datasets.part", "short", {"count": 900})],
    },
}
# A row that dies, and what was paid for it.
DEADLY = {
    "a vector that is not finite": ("nan-rows", PROVIDERS),
    # A text is all or nothing to an embed job of Cohere.
    "a row that is refused": ("reject-rows", ("openai", "voyage", "cohere_batches")),
}
# Where results are asked for, and the how many-th question it is.
GONE = {
    **dict.fromkeys(("openai", "voyage"), ("files.content", 1)),
    **dict.fromkeys(("cohere", "cohere_batches"), ("datasets.get", 3)),
}
# Settings of another recipe.
OTHER = {
    "voyage": {"dimensions": 512},
    "cohere": {"model": "embed-multilingual-light-v3.0"},
    "cohere_batches": {"model": "embed-v5.0-fast"},
}
# Done, and charged for, and not delivered.
LOST = {"results: a row is missing": 1}
STOPS = {
    "no key": ([(UPLOAD, "bad-key", {})], "credentials"),
    "no money": ([(CREATE, "no-money", {})], "insufficient-quota"),
    "the job is refused": ([("job", "fail", {})], "job-refused"),
    "a row that nobody sent": ([("job", "unknown-row", {})], "quarantined"),
    "a row twice": ([("job", "double-rows", {})], "quarantined"),
}


@pytest.fixture
def rehearsals(monkeypatch):
    monkeypatch.setenv(KEY, "any")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    made = Rehearsals()
    yield made
    made.end()


def begun(rehearsals, provider, faults):
    planned = [(at[provider] if isinstance(at, dict) else at, do, m) for at, do, m in faults]
    made = rehearsals.begin(provider, planned)
    made.add(0, 0, TEXTS)
    made.add(1, 0, ["six", "two"])
    return made


def settled(made, *, lost=0):
    """Every row has its own vector, and nothing but what was lost was paid for twice."""
    fates = made.fates()
    assert (fates.open, fates.wrong, fates.dead) == ([], [], {})
    assert len(fates.vectors) == len(TEXTS) + 2
    assert len(made.paid_twice()) <= lost
    for record in made.records():
        assert record.outcome is not None


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("trouble", PASSING)
def test_a_passing_trouble_ends_well_and_nothing_is_paid_for_twice(rehearsals, provider, trouble):
    made = begun(rehearsals, provider, PASSING[trouble])
    made.run()
    settled(made, lost=LOST.get(trouble, 0))


@pytest.mark.parametrize(
    ("provider", "trouble"), [(name, it) for name, some in OF_ONE.items() for it in some]
)
def test_a_trouble_of_one_provider_ends_well(rehearsals, provider, trouble):
    made = begun(rehearsals, provider, OF_ONE[provider][trouble])
    made.run()
    settled(made)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("trouble", STOPS)
def test_what_a_person_has_to_mend_ends_the_run_and_the_next_one_goes_on(
    rehearsals, provider, trouble
):
    faults, code = STOPS[trouble]
    made = begun(rehearsals, provider, faults)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == code
    made.run()
    settled(made, lost=8 if code == "quarantined" else 0)


@pytest.mark.parametrize(
    ("provider", "trouble"), [(name, it) for it, (_, some) in DEADLY.items() for name in some]
)
def test_a_row_that_cannot_be_used_dies_alone(rehearsals, provider, trouble):
    made = begun(rehearsals, provider, [("job", DEADLY[trouble][0], {"count": 1})])
    # The first row is none of those that every file begins with.
    made.canaries = ()
    made.run()
    fates = made.fates()
    assert (fates.open, fates.wrong) == ([], [])
    # An equal text of its segment dies with it; one of another has waited, and has its own try.
    assert 1 <= len(fates.dead) <= 2
    assert len(fates.vectors) == len(TEXTS) + 2 - len(fates.dead)
    assert len(made.paid_twice()) <= 1


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("status", ["400", "403", "422"])
def test_results_that_are_refused_are_not_given_up(rehearsals, provider, status):
    route, call = GONE[provider]
    made = begun(rehearsals, provider, [(route, "error", {"call": call, "value": status})])
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code in {"results-refused", "credentials"}
    made.run()
    settled(made)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_results_that_are_gone_end_the_run_and_are_not_paid_for_again_unasked(rehearsals, provider):
    route, call = GONE[provider]
    made = begun(rehearsals, provider, [(route, "not-found", {"call": call})])
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "results-gone"
    assert made.paid_twice() == {}
    # Who types the command again has read that it will be paid for again.
    made.run()
    settled(made, lost=8)


@pytest.mark.parametrize("provider", PROVIDERS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_process_that_dies_at_any_effect_is_followed_by_one_that_pays_for_nothing_again(
    rehearsals, provider, moment
):
    process = Process()
    whole = begun(rehearsals, provider, [])
    whole.run(process)
    settled(whole)
    for number in dying_at(process.effects, moment):
        made = begun(rehearsals, provider, [])
        with pytest.raises(Crash):
            made.run(Process(number, moment))
        made.clock.sleep(1)
        made.run()
        made.add(0, 1, ["something new"])
        made.run()
        fates = made.fates()
        assert (fates.open, fates.wrong, fates.dead) == ([], [], {}), process.effects[number - 1]
        assert made.paid_twice() == {}, process.effects[number - 1]
        assert all(record.outcome is not None for record in made.records())
        rehearsals.end()


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_job_that_was_cancelled_is_followed_by_one_for_the_rest(rehearsals, provider):
    made = begun(rehearsals, provider, [("job", "stay", {"count": 0})])
    made.run(wait=False)
    (record,) = made.records()
    records = JobRecords(made.workspace, "jobs", made.names)
    assert cancel_job(record, records, made.provider, clock=made.clock, sleep=made.clock.sleep)
    made.run()
    # What was done is lost at Cohere, and only there.
    settled(made, lost=0 if made.provider.limits.cancelled_rows_are_kept else 3)
    assert {record.outcome.status for record in made.records()} == {"cancelled", "succeeded"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_job_that_may_exist_is_not_sent_again_through_cohere_s_other_way(rehearsals, moment):
    made = begun(rehearsals, "cohere", [])
    whole = Process()
    made.run(whole)
    number = 1 + [effect.kind for effect in whole.effects].index("submit")
    made = begun(rehearsals, "cohere", [])
    with pytest.raises(Crash):
        made.run(Process(number, moment))
    one_way, template = made.provider, made.template
    made.provider = rehearsals.another(
        one_way, {"model": "embed-english-light-v3.0"}, "cohere_batches"
    )
    made.template = template_of(made.provider)
    assert made.provider.recipe == one_way.recipe
    (record,) = made.records()
    with pytest.raises(RefusedError, match="through cohere; the settings name") as refused:
        made.run()
    assert record.intent.key in refused.value.hint
    records = JobRecords(made.workspace, "jobs", made.names)
    with pytest.raises(RefusedError, match="may have been sent through cohere"):
        cancel_job(record, records, made.provider, clock=made.clock, sleep=made.clock.sleep)
    made.provider, made.template = one_way, template
    made.clock.sleep(1)
    made.run()
    settled(made)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_job_that_may_exist_is_not_sent_again_from_another_account(rehearsals, provider, moment):
    made = begun(rehearsals, provider, [])
    whole = Process()
    made.run(whole)
    number = 1 + [effect.kind for effect in whole.effects].index("submit")
    made = begun(rehearsals, provider, [])
    made.options["account"] = "the first"
    with pytest.raises(Crash):
        made.run(Process(number, moment))
    asked = len(made.provider.server.requests)
    made.options["account"] = "another"
    with pytest.raises(RefusedError, match="another API key or to another base_url"):
        made.run()
    assert len(made.provider.server.requests) == asked
    # As it was: it is found, or sent for the first time.
    made.options["account"] = "the first"
    made.clock.sleep(1)
    made.run()
    settled(made)
    assert {record.intent.account for record in made.records()} == {"the first"}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_an_intent_whose_account_is_gone_is_given_up_or_ended_by_hand(rehearsals, moment):
    made = begun(rehearsals, "openai", [])
    whole = Process()
    made.run(whole)
    number = 1 + [effect.kind for effect in whole.effects].index("submit")
    made = begun(rehearsals, "openai", [])
    made.options["account"] = "the first"
    with pytest.raises(Crash):
        made.run(Process(number, moment))
    made.options["account"] = "renewed"
    (record,) = made.records()
    records = JobRecords(made.workspace, "jobs", made.names)
    handle = cancel_job(record, records, made.provider, clock=made.clock, sleep=made.clock.sleep)
    assert (handle is None) == (moment == "before")
    made.run()
    settled(made)


@pytest.mark.parametrize("change", ["key", "base_url"])
def test_a_run_knows_another_account_by_key_and_address(rehearsals, tmp_path, monkeypatch, change):
    monkeypatch.setenv(KEY, "sk-fake")
    server = rehearsals.serve("openai", polls_per_status=1)
    settings = settings_for(tmp_path, "openai", server, jobs={"canaries": 0})
    clock = Clock()
    monkeypatch.setattr("embedmill.job_assembly._now", clock.utc)
    options = RunOptions(clock=clock, sleep=clock.sleep, wait_for_jobs=False)
    executor = InlineExecutor()
    ingest(settings, executor, options)
    executor.close()
    # As if the machine had gone down before the job's id was written.
    (submitted,) = tmp_path.rglob("submitted.json")
    submitted.unlink()
    if change == "key":
        monkeypatch.setenv(KEY, "sk-fake-2")
    else:
        address = server.base_url.replace("127.0.0.1", "localhost")
        changed = settings.embedder.model_copy(update={"base_url": address})
        settings = settings.model_copy(update={"embedder": changed})
    executor = InlineExecutor()
    with pytest.raises(RefusedError, match="may have been sent with another API key"):
        ingest(settings, executor, options)
    executor.close()
    assert server.posts("/batches") == 1


@pytest.mark.parametrize("provider", OTHER)
def test_a_job_of_another_recipe_with_an_equal_file_is_not_taken_for_ours(rehearsals, provider):
    made = begun(rehearsals, provider, [("job", "stay", {"count": 0})])
    made.run(wait=False)
    (record,) = made.records()
    mine = {
        "job_key": record.intent.key,
        "fingerprint": record.intent.fingerprint,
        "since": record.intent.created,
    }
    assert made.provider.find(**mine) == record.handle
    other = rehearsals.another(made.provider, OTHER[provider])
    assert other.find(**mine) is None
    listed = list(other.list_jobs(record.intent.created))
    assert [job.handle.job_id for job in listed] == [record.handle.job_id]


# Whole runs.

EMBEDDERS = {
    "openai": {"dimensions": 16, "tokenizer": "estimate"},
    "voyage": {"dimensions": 256},
    "cohere": {"model": "embed-english-light-v3.0"},
    "cohere_batches": {"kind": "cohere", "jobs_through": "batches"},
}


class Clock:
    """Of the driver and of the runner of jobs; time passes by sleeping only."""

    def __init__(self):
        self.begun = datetime.now(UTC)
        self.seconds = 0.0

    def __call__(self):
        return self.seconds

    def sleep(self, seconds):
        self.seconds += seconds

    def utc(self):
        return self.begun + timedelta(seconds=self.seconds)


def settings_for(folder, provider, server, **more):
    rows = [{"id": f"d{at}", "text": f"text number {at}"} for at in range(12)]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    values = {
        "index": f"jobs-of-{provider}",
        "workspace": str(folder / "workspace"),
        "source": {"kind": "table", "path": str(folder / "rows.jsonl")},
        "chunker": {"kind": "text", "max_tokens": 60},
        "embedder": {
            "kind": provider,
            "api_key": f"${{{KEY}}}",
            "base_url": server.base_url,
            "mode": "batch",
            **EMBEDDERS[provider],
            **more,
        },
        "store": {"kind": "memory", "name": f"jobs-of-{provider}"},
        "shard_count": 2,
        "run": {"segment_chunks": 5},
    }
    return Settings.model_validate_json(json.dumps(values))


@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_whole_run_goes_through_jobs_and_says_what_they_were(
    rehearsals, provider, tmp_path, monkeypatch
):
    clock = Clock()
    monkeypatch.setattr("embedmill.job_assembly._now", clock.utc)
    server = rehearsals.serve(provider, now=lambda: clock.utc().timestamp())
    settings = settings_for(tmp_path, provider, server)
    executor = InlineExecutor()
    report = ingest(settings, executor, RunOptions(clock=clock, sleep=clock.sleep))
    executor.close()
    assert (report.status, report.problems(), report.stored_records) == ("succeeded", [], 12)
    assert [job["provider"] for job in report.jobs] == [provider]
    assert report.jobs[0]["tokens_charged"] > 0
    assert all(server.bill.times(f"text number {at}") == 1 for at in range(12))


@pytest.mark.parametrize("model", ["embed-v4.0", "embed-v5.0-pro"])
def test_a_model_that_has_no_jobs_is_refused_before_anything_is_sent(tmp_path, rehearsals, model):
    server = rehearsals.serve("cohere")
    with pytest.raises(ValueError, match="models of version 3 only"):
        settings_for(tmp_path, "cohere", server, model=model)
    assert server.requests == []
