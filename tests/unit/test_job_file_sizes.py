"""Files of requests that a provider refuses for their size: halves, blame, and no blame."""

from datetime import UTC, datetime, timedelta

import pytest
from job_scenes import WORDS, settled, small_files

from embedmill.batch_provider import BatchLimits
from embedmill.errors import StopRunError
from embedmill.job_file_sizes import FileSizes
from embedmill.job_records import Intent
from embedmill.job_requests import Requests
from embedmill.segment import SegmentKey
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.job_rehearsal import JobRehearsal


def refused_for_size(made):
    return [r.intent.inputs for r in made.records() if r.outcome.status == "too-large"]


def test_a_file_that_is_refused_for_its_size_is_sent_in_halves():
    made = small_files(5)
    made.run()
    settled(made)
    assert refused_for_size(made) == [6]
    # The bill knows that it cost nothing.
    assert {r.outcome.tokens for r in made.records() if r.outcome.status == "too-large"} == {0}


def test_no_file_is_sent_twice_where_jobs_tell_late_that_they_are_too_large():
    made = small_files(5, late=True)
    made.run()
    settled(made)
    # All that were sent before the first had told.
    assert sorted(refused_for_size(made)) == [4, 6, 6, 6, 6]
    fingerprints = [record.intent.fingerprint for record in made.records()]
    assert len(set(fingerprints)) == len(fingerprints)


def test_a_later_process_knows_what_was_too_large():
    made = small_files(5, segments=1)
    made.run()
    made.add(0, 5, [f"new {number}" for number in range(8)])
    made.run()
    settled(made)
    assert refused_for_size(made) == [6]


def with_bulky_texts(*texts, late=False):
    """At a provider that takes no file with a text of these, among ten others."""
    made = JobRehearsal(limits=BatchLimits(window_s=86_400))
    made.provider.bulky, made.provider.tells_late = "bulky", late
    made.add(0, 0, [*texts, *WORDS[:10]])
    return made


@pytest.mark.parametrize("late", [True, False])
def test_a_few_bad_texts_stop_no_corpus_where_all_good_ones_are_sent_before_them(late):
    made = JobRehearsal(limits=BatchLimits(window_s=86_400))
    made.provider.bulky, made.provider.tells_late = "bulky", late
    made.add(0, 0, [*WORDS[:10], *(f"{n} bulky #11" for n in range(4))])
    # What passed is known to the next process as well.
    with pytest.raises(Crash):
        made.run(Process(crash_at=20))
    made.run()
    settled(made, dead=4)


def submissions(made):
    return made.provider.calls["submit"]


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("tokens", [11, 900])
def test_a_text_that_is_too_large_for_a_file_even_alone_dies_and_holds_nothing_up(late, tokens):
    made = with_bulky_texts(*(f"{n} bulky #{tokens}" for n in range(5)), late=late)
    made.run()
    settled(made, dead=5)
    assert set(made.fates().dead.values()) == {"too-large"}
    # By halves to each of them, and no smaller files for the others than need be.
    assert submissions(made) <= 30
    assert max(len(job.requests) for job in made.provider.jobs if job.status == "succeeded") > 6
    made.add(0, 1, WORDS[10:])
    made.run()
    assert len(made.provider.jobs[-1].requests) == 22


def test_texts_that_are_too_large_for_a_file_die_although_no_other_text_is_left():
    made = with_bulky_texts()
    made.run()
    made.add(0, 1, [f"{n} bulky #900" for n in range(7)])
    made.run()
    settled(made, dead=7)


@pytest.mark.parametrize("late", [True, False])
def test_no_text_is_blamed_where_no_file_passes_however_small(late):
    made = small_files(2, segments=3, late=late)
    with pytest.raises(StopRunError) as stopped:
        made.run()
    assert stopped.value.code == "embedder-settings"
    assert ("planned to fail" if late else "413") in str(stopped.value)
    assert "jobs.canaries" in stopped.value.hint
    assert submissions(made) == (5 + 14 + 3 if late else 2 + 3)
    assert made.fates().dead == {}
    # Neither these texts nor the size of later files have to suffer for it.
    made.provider.most_lines = None
    made.run()
    settled(made)
    assert len(made.provider.jobs[-1].requests) in {6, 8}


def test_texts_that_are_perhaps_not_to_blame_go_without_jobs_when_it_is_too_late_for_them():
    made = small_files(2, segments=1, late=True)
    made.auto = True
    made.options["deadline"] = made.clock() + timedelta(minutes=45)
    made.run()
    settled(made)
    # One was refused alone before.
    assert 1 in refused_for_size(made)


def test_texts_that_are_perhaps_not_to_blame_go_without_jobs_where_they_are_few():
    made = JobRehearsal(limits=BatchLimits(window_s=86_400))
    made.provider.bulky = "bulky"
    made.add(0, 0, [*WORDS[:6], "0 bulky #11", WORDS[6]])
    made.auto, made.options["realtime_below"] = True, 2
    made.run()
    settled(made)
    assert 1 in refused_for_size(made)


def test_a_run_ends_again_where_nothing_passes_though_its_clock_is_behind():
    made = small_files(2, segments=1)
    for _ in range(2):
        with pytest.raises(StopRunError):
            made.run()
        made.clock.sleep(-60)
    assert made.fates().dead == {}
    made.provider.most_lines = None
    made.run()
    settled(made)


def test_a_run_ends_where_each_text_is_refused_in_other_words():
    sizes, now = FileSizes(), datetime(2026, 11, 30, tzinfo=UTC)
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi omicron pi"
    hopeless = []
    for row, word in enumerate(words.split()):
        requests = Requests.of([((SegmentKey(0, 0), row),)])
        intent = Intent(f"job{row}", now, "", requests, inputs=1, bytes=9, tokens=1)
        sizes.refuse(intent, f"{word}: too large", now, doubtful=True)
        hopeless.append(sizes.is_hopeless(()))
    assert hopeless == [False] * 15 + [True]


def test_a_process_that_dies_before_it_knows_whose_fault_it_is_leaves_that_to_the_next():
    made = small_files(2, segments=1)
    with pytest.raises(Crash):
        made.run(Process(crash_at=6))
    assert made.records()[-1].outcome is None
    made.provider.most_lines = None
    made.run()
    settled(made)
