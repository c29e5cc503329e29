"""Every effect of embedding jobs: crash before it and after it, run again, compare the bill."""

from datetime import timedelta

import pytest
from deaths import MOMENTS, dying_at

from embedmill.batch_provider import BatchLimits
from embedmill.segment import SegmentKey
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.fake_batch_provider import ProviderFault
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.text_index import Loan

LIMITS = BatchLimits(inputs_per_file=7, window_s=86_400)
# In a shard that no scene has.
NEW = SegmentKey(2, 0)


def split_segments(*faults, limits=LIMITS, **more):
    """Segments that share files, texts and lenders."""
    made = JobRehearsal(*faults, limits=limits, listed_after_s=50, **more)
    first = made.add(0, 0, ["one", "two", "three", "one", "four"])
    made.add(0, 1, ["five", "two", "six"], same_as=[(-1, -1), (0, 1), (-1, -1)])
    made.add(1, 0, ["seven", "one", "eight"], loans=[Loan(1, first, 0)])
    made.add(1, 1, ["four"], loans=[Loan(0, first, 4)])
    return made


def with_requests_of_several():
    made = split_segments(ProviderFault("job", "fail-rows"), poison="six")
    made.inputs_per_request = 3
    return made


def with_a_small_remainder():
    made = split_segments(ProviderFault("job", "fail-rows"))
    made.auto = True
    made.options["realtime_below"] = 4
    return made


def with_a_deadline():
    made = split_segments(ProviderFault("job", "stick", times=0))
    made.auto = True
    made.options["deadline"] = made.clock.now + timedelta(hours=1)
    return made


def with_few_tokens():
    limits = BatchLimits(enqueued_tokens=60, window_s=86_400)
    return split_segments(ProviderFault("job", "expire", count=4), limits=limits)


def with_stale_rows():
    """Documents change while their job runs, and it is cancelled."""
    made = split_segments(limits=BatchLimits(window_s=86_400))
    made.options["stale_share"] = 0.3
    made.run(wait=False)
    made.add(0, 2, ["nine", "two"], instead_of={0: (0, 2), 1: (0, 1)}, gone=[(0, 0), (0, 4)])
    made.add(1, 2, [], gone=[(0, 0), (0, 2)])
    return made


SCENES = {
    "split segments": split_segments,
    "results in any order, some missing": lambda: split_segments(
        ProviderFault("job", "shuffle", times=0), ProviderFault("job", "miss", call=2)
    ),
    "a lost reply and a full queue": lambda: split_segments(
        ProviderFault("submit", "reply-lost"), ProviderFault("job", "fail-queue-full", call=2)
    ),
    "requests of several texts, one of them bad": with_requests_of_several,
    "a small remainder goes the direct way": with_a_small_remainder,
    "a deadline cancels": with_a_deadline,
    "expired, and few tokens at a time": with_few_tokens,
    "stale rows": with_stale_rows,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("scene", SCENES)
def test_a_process_killed_at_any_effect_is_followed_by_one_that_pays_for_nothing_again(
    scene, moment
):
    check_every_effect(scene, moment, wait=True)


@pytest.mark.parametrize("moment", MOMENTS)
def test_nor_is_anything_paid_for_again_when_nobody_waits_for_the_jobs(moment):
    check_every_effect("a lost reply and a full queue", moment, wait=False)


def check_every_effect(scene, moment, *, wait):
    whole = SCENES[scene]()
    effects = lived(whole, wait)
    expected = whole.fates()
    lost = whole.paid_twice().keys()
    assert not lost or "missing" in scene
    problems = []
    for number in dying_at(effects, moment):
        made = SCENES[scene]()
        dying = Process(number, moment)
        with pytest.raises(Crash):
            lived(made, wait, dying)
        made.clock.sleep(1)
        lived(made, wait)
        # A job whose segments were complete is closed by the next run that has something to do.
        made.add(NEW.shard, NEW.number, ["something new"])
        lived(made, wait)
        wrong = list(complaints(made, expected, dying, lost))
        if wrong:
            problems.append((number, dying.effects[-1:], wrong))
    assert problems == []


def lived(made, wait, process=None):
    """Effects of as many runs as it takes; a process that was given sees all of them."""
    process = process or Process()
    for _ in range(40):
        made.run(process, wait=wait)
        if not made.waiting():
            return process.effects
        made.clock.sleep(400)
    raise AssertionError(f"no end: {made.waiting()}")


def complaints(made, expected, dying, lost):
    """What differs from a life without deaths, but for what was in flight to the model itself."""
    fates = made.fates()
    del fates.vectors[NEW, 0]
    if (fates.vectors, fates.dead, fates.open) != (expected.vectors, expected.dead, []):
        yield fates
    twice = made.paid_twice().keys() - lost
    in_flight = {text for effect in dying.effects[-1:] for text in effect.texts}
    if twice - in_flight:
        yield f"paid twice: {sorted(twice)}"
    for record in made.records():
        if record.outcome is None:
            yield f"no outcome: {record.intent.key}"
        elif record.outcome.counted and record.outcome.buckets.total != record.intent.inputs:
            yield f"{record.outcome.buckets} of {record.intent.inputs}"
    left = [path for path in made.workspace.files if "/rows/" in path or "/loans/" in path]
    if left:
        yield f"litter: {left}"


def test_two_deaths_are_no_worse_than_one():
    for first in range(1, 12, 2):
        for second in range(1, 6, 2):
            made = split_segments()
            for number in (first, second):
                with pytest.raises(Crash):
                    made.run(Process(number, "after"))
            made.run()
            assert (made.fates().open, made.fates().wrong) == ([], [])
            assert made.paid_twice() == {}
