"""Any history of embedding jobs: segments come and go on, calls fail, processes are killed."""

import sys

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from embedmill.batch_provider import BatchLimits
from embedmill.document import text_hash
from embedmill.testing.crash_points import Crash, Process
from embedmill.testing.fake_batch_provider import ProviderFault
from embedmill.testing.job_rehearsal import JobRehearsal
from embedmill.text_index import TextIndex

# Nothing that these do makes a text be paid for twice.
HARMLESS = [
    ("submit", "reply-lost"),
    ("submit", "unknown"),
    ("submit", "rate-limit"),
    ("submit", "queue-full"),
    ("submit", "upload-lost"),
    ("submit", "fail"),
    ("find", "fail"),
    ("state", "fail"),
    ("state", "odd-status"),
    ("outcomes", "truncate"),
    ("cancel", "fail"),
    ("job", "shuffle"),
    ("job", "expire"),
    ("job", "cancel-by-provider"),
    ("job", "fail-queue-full"),
    ("job", "fail-rows"),
]
# One is long, and no file with it is taken where that is drawn.
LONG = "long #900"
letters = st.sampled_from([*"abcdefghijklmnop", LONG])
segments = st.lists(st.lists(letters, min_size=1, max_size=6))
faults = st.lists(
    st.builds(
        lambda kind, call, count: ProviderFault(kind[0], kind[1], call=call, count=count, wait=9),
        st.sampled_from(HARMLESS),
        st.integers(1, 6),
        st.integers(0, 5),
    ),
    max_size=5,
)
# What each process does: dies before or after which effect, or lives; waits or does not; below how
# many rows it embeds without a job: none, few, or all.
lives = st.lists(
    st.tuples(
        st.none() | st.integers(1, 30),
        st.sampled_from(["before", "after"]),
        st.booleans(),
        st.sampled_from([0, 3, sys.maxsize]),
    ),
    max_size=4,
)
# Lines that the provider takes in a file, known texts among them, and whether a job tells it late.
sizes = st.tuples(st.sampled_from([None, 3, 4, 5]), st.booleans())


def add(made, shard_numbers, texts, index):
    """A segment as a run commits it: with the loans that the run knows of."""
    shard = len(texts) % 3
    number = shard_numbers[shard]
    shard_numbers[shard] += 1
    key = made.add(shard, number, texts)
    made.loans[key] = index.add(key, b"".join(map(text_hash, texts)))


def in_flight(process):
    """Texts that were with the model itself, or had just come from there."""
    return {text for effect in process.effects[-2:] for text in effect.texts}


# Of two segments that want a text which died in a third one, one is to pay for it.
DIED_BEFORE = [
    ([[LONG, "a", "b"]], [(None, "before", False, 0)]),
    ([["c", "d"], [LONG], [LONG]], [(None, "before", True, sys.maxsize)]),
]
DIES_NOW = [([["b", LONG], ["a", LONG, "c"], [LONG]], [(None, "before", False, 3)])]
# And the third one is told, whatever else of it is in a job meanwhile.
HEIR_IS_COMPLETE = [
    ([[LONG]], []),
    ([["a", LONG], ["b", "b", "b", "c", LONG]], [(None, "before", False, 3)]),
]
HEIR_CAME_LATER = [
    ([["a", LONG], [LONG]], [(None, "before", False, 0)]),
    ([[LONG]], [(None, "before", False, 3)]),
]


@example(DIES_NOW, [], 4, (None, False), 1, 0, "", LONG)
@example(DIED_BEFORE, [], 4, (None, False), 1, 0, "", LONG)
@example(HEIR_IS_COMPLETE, [], 4, (None, False), 1, 0, "", LONG)
@example(HEIR_CAME_LATER, [], 4, (None, False), 1, 0, "", LONG)
@given(
    st.lists(st.tuples(segments, lives), min_size=1, max_size=3),
    faults,
    st.integers(4, 9),
    sizes,
    st.integers(1, 3),
    st.sampled_from([0, 50]),
    st.sampled_from(["", "p"]),
    st.sampled_from(["", LONG]),
)
def test_every_row_ends_once_and_no_text_is_paid_for_twice(
    rounds, faults, size, taken, inputs, lag, bad, bulky
):
    made = JobRehearsal(
        *faults,
        limits=BatchLimits(inputs_per_file=size, window_s=86_400),
        listed_after_s=lag,
        dimension=4,
        poison=bad,
    )
    made.provider.most_lines, made.provider.tells_late = taken
    made.provider.bulky = bulky
    made.inputs_per_request = inputs
    shard_numbers = [0, 0, 0]
    forgotten = set()
    for several, lived in rounds:
        # Another run of the driver: it knows nothing of what earlier ones lent.
        index = TextIndex()
        made.loans = {key: [] for key in made.loans}
        # What is complete lends nothing to later runs, unless its document says so.
        complete = set(made.fates().vectors.values())
        forgotten |= complete.intersection(text for texts in several for text in texts)
        for texts in several:
            add(made, shard_numbers, texts, index)
        for crash_at, moment, wait, below in lived:
            made.auto, made.options["realtime_below"] = below > 0, below
            made.options["new_jobs"] = below < sys.maxsize
            process = Process(crash_at, moment)
            try:
                made.run(process, wait=wait)
            except Crash:
                made.loans = {key: [] for key in made.loans}
                forgotten |= in_flight(process)
            made.clock.sleep(100)
    made.options["new_jobs"] = True
    made.run()
    fates = made.fates()
    assert (fates.open, fates.wrong) == ([], [])
    assert {made.texts[key][row] for key, row in fates.dead} <= {bad, bulky}
    assert made.paid_twice().keys() <= forgotten
    for record in made.records():
        if record.outcome is not None and record.outcome.counted:
            assert record.outcome.buckets.total == record.intent.inputs
    assert not np.any([path for path in made.workspace.files if "/loans/" in path])
