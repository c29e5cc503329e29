"""``kill -9`` of a whole run at random moments, then the same command again, to its end."""

import random
import time

import pytest

from embedmill.testing.index_contents import assert_same_contents, contents_of
from embedmill.testing.rehearsal import made_up_texts

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
SEGMENT = 32
# A segment is closed by the document that fills it.
LARGEST_SEGMENT = SEGMENT + 10
RAY_WORKERS = 2


@pytest.mark.ray
@pytest.mark.rounds(1)
def test_an_ingest_survives_any_kill(index, run, uninterrupted, seed):
    """From the second round on, the dice say of every command whether it runs on Ray.

    A Ray that dies costs ten times the processor time; test_kill_one.py has some.
    """
    dice = random.Random(seed)
    texts = made_up_texts(300, seed=dice.randrange(1000))
    index.write(texts)
    settings = index.settings(segment_chunks=SEGMENT, shard_workers=1, embed_workers=RAY_WORKERS)
    expected, embedded_once = uninterrupted(texts)
    lost_at_most = 0
    for _ in range(dice.randint(1, 3)):
        on_ray = in_doubt(dice, seed)
        if killed_once(index, begun(run, on_ray), dice):
            lost_at_most += (RAY_WORKERS if on_ray else 1) * LARGEST_SEGMENT
    last = begun(run, in_doubt(dice, seed))
    assert last.wait() == 0, last.stderr.read_text()
    assert last.report()["status"] == "succeeded"
    assert_same_contents(contents_of(settings), expected)
    assert index.texts_embedded() <= embedded_once + lost_at_most


def in_doubt(dice, seed):
    return seed > 0 and dice.random() < 0.5


def begun(run, on_ray):
    return run(*([] if on_ray else ["--local"]))


def killed_once(index, command, dice):
    """Kill after some more calls of the embedder, or before the first; whether it came to that."""
    goal = index.calls() + dice.randint(0, 12)
    if goal == index.calls():
        time.sleep(dice.uniform(0.0, 3.0))
    command.wait_until(lambda: index.calls() >= goal)
    time.sleep(dice.uniform(0.0, 0.1))
    command.kill_all()
    return command.process.returncode != 0
