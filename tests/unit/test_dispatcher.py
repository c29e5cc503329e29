"""Calls in flight: who is to blame for a death, and that every end is delivered once."""

import threading
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from embedmill.errors import RefusedError, StopRunError, TransientError, WorkerDiedError
from embedmill.executor import WorkerSpec
from embedmill.testing.scripted_executor import ScriptedExecutor
from embedmill.waiting_executor import WaitingExecutor
from pipelines.dispatcher import QUEUED_PER_WORKER, Dispatcher
from pipelines.faults import FaultPolicy


class Echo:
    def say(self, word):
        return word

    def refuse(self):
        raise RefusedError("no")

    def begin_work(self):
        raise TransientError("nobody answers")

    def give_up(self):
        raise StopRunError("no money")


def dispatcher_over(executor, workers=2, at_a_time=1):
    dispatcher = Dispatcher(executor, FaultPolicy(executor))
    dispatcher.add_pool("pool", [WorkerSpec(Echo, (), at_a_time=at_a_time)] * workers)
    return dispatcher


def drain(dispatcher):
    while dispatcher.in_flight:
        dispatcher.step(0)


def test_every_end_is_delivered_to_the_one_that_asked():
    dispatcher = dispatcher_over(ScriptedExecutor(choose=lambda ready: -1))
    heard = []
    for word in "abc":
        dispatcher.call(("pool", 0), "say", word, then=lambda d: heard.append(d.value))
        dispatcher.call(("pool", 1), "say", word * 2, then=lambda d: heard.append(d.value))
    drain(dispatcher)
    assert sorted(heard) == ["a", "aa", "b", "bb", "c", "cc"]


@pytest.mark.parametrize("at_a_time", [1, 4])
def test_a_worker_has_room_for_what_it_runs_and_a_little_more(at_a_time):
    dispatcher = dispatcher_over(ScriptedExecutor(), at_a_time=at_a_time)
    for at in range(at_a_time + QUEUED_PER_WORKER):
        assert dispatcher.has_room("pool", 0)
        dispatcher.call(("pool", 0), "say", at, then=lambda d: None)
    assert not dispatcher.has_room("pool", 0)
    assert dispatcher.has_room("pool", 1)
    dispatcher.step(0)
    assert dispatcher.has_room("pool", 0)


@given(
    deaths=st.sets(st.integers(0, 20), max_size=6),
    order=st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
def test_of_the_calls_that_die_together_exactly_the_oldest_was_running(deaths, order):
    turn = iter(range(10**6))
    executor = ScriptedExecutor(
        accident=lambda call: "die" if call.turn in deaths else None,
        choose=lambda _: order[next(turn) % len(order)],
    )
    dispatcher = dispatcher_over(executor, workers=3)
    ended, running = Counter(), []

    def hear(name, done):
        ended[name] += 1
        if isinstance(done.error, WorkerDiedError):
            if done.error.running:
                running.append(name)
        else:
            assert done.value == name

    names = [(n % 3, n) for n in range(12)]
    for name in names:
        dispatcher.call(("pool", name[0]), "say", name, then=lambda d, n=name: hear(n, d))
    drain(dispatcher)
    assert ended == Counter(dict.fromkeys(names, 1))
    assert len(running) == len(executor.replaced)
    assert all(running.count(name) == 1 for name in running)


def test_of_the_calls_that_ran_at_a_time_each_may_have_ended_the_worker():
    executor = ScriptedExecutor(accident=lambda call: "die" if call.turn == 1 else None)
    dispatcher = dispatcher_over(executor, at_a_time=3)
    heard = []
    for word in "abcd":
        dispatcher.call(("pool", 0), "say", word, then=heard.append)
    dispatcher.call(("pool", 1), "say", "e", then=heard.append)
    drain(dispatcher)
    died = [done for done in heard if done.error is not None]
    assert [done.error.running for done in died] == [True] * 3
    assert sorted(done.value for done in heard if done.error is None) == ["a", "e"]
    assert executor.replaced == [("pool", 0)]


class Batches(ScriptedExecutor):
    """Tells of all ends at once, as Ray does of those that it has."""

    def wait(self, timeout_s):
        found = []
        while one := super().wait(timeout_s):
            found += one
        return found


@pytest.mark.parametrize("kind", [ScriptedExecutor, Batches])
@pytest.mark.parametrize("cores", [0, 2])
def test_what_runs_when_something_ends_the_run_is_heard_of(kind, cores):
    dispatcher = dispatcher_over(kind(cores=cores), at_a_time=3)
    heard = []

    def hear(done):
        if done.error is not None:
            raise done.error
        heard.append(done.value)

    for method in ("give_up", "say", "refuse", "say"):
        words = [method] if method == "say" else []
        dispatcher.call(("pool", 0), method, *words, then=hear)
    with pytest.raises(StopRunError, match="no money"):
        dispatcher.step(0)
    # Workers that take turns in one thread have not begun the others; what has ended is told.
    begun = cores or kind is Batches
    assert heard == (["say", "say"] if begun else [])
    assert dispatcher.in_flight == (0 if begun else 3)


class Payer:
    """Pays for a call that is under way when another one ends the run, and ends after that."""

    def __init__(self, begun, told):
        self._begun, self._told = begun, told

    def give_up(self):
        assert self._begun.wait(20)
        raise StopRunError("no money")

    def pay(self):
        self._begun.set()
        assert self._told.wait(20)
        return "paid"


def test_what_waits_in_a_thread_when_something_ends_the_run_is_heard_of():
    executor, told = WaitingExecutor(), threading.Event()
    dispatcher = Dispatcher(executor, FaultPolicy(executor))
    dispatcher.add_pool("pool", [WorkerSpec(Payer, (threading.Event(), told), at_a_time=2)])
    heard = []

    def stop(done):
        told.set()
        raise done.error

    dispatcher.call(("pool", 0), "give_up", then=stop)
    dispatcher.call(("pool", 0), "pay", then=lambda done: heard.append(done.value))
    with pytest.raises(StopRunError, match="no money"):
        dispatcher.step(20)
    assert heard == ["paid"]
    executor.close()


def test_an_end_that_raises_keeps_none_from_being_told():
    dispatcher = dispatcher_over(Batches())
    heard = []

    def refuse(done):
        raise done.error

    dispatcher.call(("pool", 0), "refuse", then=refuse)
    dispatcher.call(("pool", 1), "say", "x", then=lambda d: heard.append(d.value))
    with pytest.raises(RefusedError):
        dispatcher.step(0)
    dispatcher.step(0)
    assert heard == ["x"]


def test_a_worker_is_replaced_before_its_deaths_are_told():
    dispatcher = dispatcher_over(
        ScriptedExecutor(accident=lambda call: "die" if call.turn == 0 else None)
    )
    heard = []

    def again(done):
        dispatcher.call(("pool", 0), "say", "again", then=lambda d: heard.append(d.value))

    dispatcher.call(("pool", 0), "say", "x", then=again)
    drain(dispatcher)
    assert heard == ["again"]


def test_a_worker_that_is_discarded_takes_its_calls_along_and_blames_none_of_them():
    executor = ScriptedExecutor()
    dispatcher = dispatcher_over(executor)
    heard = []
    for word in "ab":
        dispatcher.call(("pool", 0), "say", word, then=heard.append)
    dispatcher.discard(("pool", 0), TransientError("not to be trusted"))
    drain(dispatcher)
    assert [done.error.running for done in heard] == [False, False]
    # It is replaced once, however many calls it held.
    assert executor.replaced == [("pool", 0)]


def test_asking_waits_for_the_answer_and_delivers_others_meanwhile():
    dispatcher = dispatcher_over(ScriptedExecutor())
    heard = []
    dispatcher.call(("pool", 0), "say", "first", then=lambda d: heard.append(d.value))
    assert dispatcher.ask(("pool", 0), "say", "second") == "second"
    assert heard == ["first"]


def test_asking_raises_what_the_call_raised():
    dispatcher = dispatcher_over(ScriptedExecutor())
    with pytest.raises(RefusedError, match="no"):
        dispatcher.ask(("pool", 0), "refuse")


def test_deaths_without_a_commit_between_them_end_the_run():
    executor = ScriptedExecutor(accident=lambda _: "die")
    faults = FaultPolicy(executor)
    dispatcher = Dispatcher(executor, faults)
    dispatcher.add_pool("pool", [WorkerSpec(Echo, ())])

    def die(times):
        for _ in range(times):
            dispatcher.call(("pool", 0), "say", "x", then=lambda d: None)
            drain(dispatcher)

    die(10)
    faults.committed()
    die(10)
    with pytest.raises(StopRunError, match="11 workers died and nothing was committed") as caught:
        die(1)
    assert "logs" in caught.value.hint


def test_a_large_pool_may_lose_more_before_it_is_a_loop():
    executor = ScriptedExecutor(accident=lambda _: "die")
    dispatcher = dispatcher_over(executor, workers=20)
    for worker in range(20):
        dispatcher.call(("pool", worker), "say", "x", then=lambda d: None)
    drain(dispatcher)
    assert len(executor.replaced) == 20


def test_what_is_asked_again_in_vain_is_named_in_words():
    dispatcher = dispatcher_over(ScriptedExecutor())
    with pytest.raises(StopRunError, match="begin work of pool worker 1 failed 8 times") as stopped:
        dispatcher.ask_again(("pool", 1), "begin_work", sleep=lambda _: None)
    assert "nobody answers" in str(stopped.value)
    assert "see whether what did not answer is there" in stopped.value.hint


def test_what_is_asked_many_times_may_fail_in_between_as_often_as_it_then_succeeds():
    executor = ScriptedExecutor(accident=lambda call: None if call.turn % 2 else "fail")
    dispatcher = dispatcher_over(executor)
    for _ in range(20):
        assert dispatcher.ask_again(("pool", 1), "say", "x", sleep=lambda _: None) == "x"
