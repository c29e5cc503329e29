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


@pytest.mark.rounds(2)
def test_an_ingest_in_one_process_survives_any_kill(index, run, uninterrupted, seed):
    survives(index, run, uninterrupted, random.Random(seed), ["--local"], workers=1)


@pytest.mark.ray
@pytest.mark.rounds(1)
def test_an_ingest_on_ray_survives_any_kill(index, run, uninterrupted, seed):
    survives(index, run, uninterrupted, random.Random(1001 + seed), [], workers=2)


def survives(index, run, uninterrupted, dice, arguments, *, workers):
    texts = made_up_texts(300, seed=dice.randrange(1000))
    index.write(texts)
    settings = index.settings(segment_chunks=SEGMENT, shard_workers=1, embed_workers=workers)
    expected, embedded_once = uninterrupted(texts)
    kills = 0
    for _ in range(dice.randint(1, 3)):
        kills += killed_once(index, run(*arguments), dice)
    last = run(*arguments)
    assert last.wait() == 0, last.stderr.read_text()
    assert last.report()["status"] == "succeeded"
    assert_same_contents(contents_of(settings), expected)
    assert index.texts_embedded() <= embedded_once + kills * workers * LARGEST_SEGMENT


def killed_once(index, command, dice):
    """Kill after some more calls of the embedder, or before the first; whether it came to that."""
    goal = index.calls() + dice.randint(0, 12)
    if goal == index.calls():
        time.sleep(dice.uniform(0.0, 3.0))
    command.wait_until(lambda: index.calls() >= goal)
    time.sleep(dice.uniform(0.0, 0.1))
    command.kill_all()
    return command.process.returncode != 0
