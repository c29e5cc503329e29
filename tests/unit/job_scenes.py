"""Segments that wait for embedding jobs, and what has to be true of all of them in the end."""

from embedmill.batch_provider import BatchLimits
from embedmill.testing.fake_batch_provider import ProviderFault
from embedmill.testing.job_rehearsal import JobRehearsal

# Two of the inputs are known texts.
SMALL = BatchLimits(inputs_per_file=8, window_s=86_400)
WORDS = [f"w{number} x{number % 7}" for number in range(30)]


def on(what, do, **more):
    return ProviderFault(what, do, **more)


def rehearsal(*faults, segments=3, **more):
    """Some segments of ten texts; two of them share a text within and across."""
    made = JobRehearsal(*faults, limits=more.pop("limits", SMALL), **more)
    for number in range(segments):
        made.add(number % 2, number // 2, [*WORDS[10 * number : 10 * number + 9], "shared"])
    return made


def settled(made, *, lost=0, dead=0):
    """Every row has its vector or a code, and no text was paid for twice, but for lost ones."""
    fates = made.fates()
    assert (fates.open, fates.wrong) == ([], [])
    assert len(fates.dead) == dead
    assert len(fates.vectors) == sum(map(len, made.texts.values())) - dead
    assert len(made.paid_twice()) <= lost
    for record in made.records():
        assert record.outcome is not None
        if record.outcome.counted:
            assert record.outcome.buckets.total == record.intent.inputs
    keys = [key for key, _ in made.done]
    assert sorted(keys) == sorted(made.texts)


def in_realtime(made):
    """Later processes send no job any more."""
    made.auto = True
    made.options["new_jobs"] = False


def small_files(most_lines, *, late=False, **more):
    """At a provider that takes smaller files than it states; two lines are known texts."""
    made = rehearsal(**more)
    made.provider.most_lines, made.provider.tells_late = most_lines, late
    return made
