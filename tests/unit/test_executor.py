"""The inline executor, and the scripted one that stands for actors: the same promises."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from embedmill.errors import TransientError, WorkerDiedError
from embedmill.executor import InlineExecutor, WorkerSpec
from embedmill.testing.scripted_executor import KilledWorker, ScriptedExecutor
from embedmill.waiting_executor import WaitingExecutor


class Teller:
    """Tells what it was asked, and how old it is."""

    made = 0
    closed = 0

    def __init__(self, name):
        Teller.made += 1
        self.name, self.asked = name, 0

    def tell(self, *words):
        self.asked += 1
        return (self.name, self.asked, *words)

    def part(self, *words):
        return list(words)

    def fail(self):
        raise TransientError("not now")

    def break_down(self):
        raise ZeroDivisionError("a bug")

    def die(self):
        raise KilledWorker

    def close(self):
        Teller.closed += 1


@pytest.fixture(autouse=True)
def counted():
    Teller.made = Teller.closed = 0


@pytest.fixture(params=[InlineExecutor, WaitingExecutor, ScriptedExecutor])
def executor(request):
    made = request.param()
    made.add_pool("first", [WorkerSpec(Teller, ("f0",)), WorkerSpec(Teller, ("f1",))])
    made.add_pool("second", [WorkerSpec(Teller, ("s0",))])
    yield made
    made.close()


def ends(executor):
    found = {}
    while done := executor.wait(0):
        found |= {one.ticket: one for one in done}
    return found


def test_workers_are_made_with_their_first_call(executor):
    executor.submit("first", 1, "tell")
    assert Teller.made == 0
    ends(executor)
    assert Teller.made == 1


def test_calls_of_one_worker_run_in_the_order_of_submission(executor):
    tickets = [executor.submit("first", 0, "tell", n) for n in range(4)]
    executor.submit("first", 1, "tell", "other")
    found = ends(executor)
    assert [found[t].value for t in tickets] == [("f0", n + 1, n) for n in range(4)]


def test_parts_stay_apart_from_what_is_returned(executor):
    ticket = executor.submit("first", 0, "part", "value", "one", "two", parts=2)
    done = ends(executor)[ticket]
    assert (done.value, done.parts) == ("value", ("one", "two"))


def test_an_error_of_ours_is_the_end_of_its_call_alone(executor):
    failed = executor.submit("first", 0, "fail")
    after = executor.submit("first", 0, "tell")
    found = ends(executor)
    assert isinstance(found[failed].error, TransientError)
    assert found[after].value == ("f0", 1)


def test_a_bug_is_not_taken_for_an_outcome(executor):
    executor.submit("first", 0, "break_down")
    with pytest.raises(ZeroDivisionError):
        ends(executor)


def test_nothing_queued_is_nothing_ended(executor):
    assert executor.wait(5.0) == []


def test_a_worker_that_is_replaced_takes_its_queued_calls_along(executor):
    executor.submit("first", 0, "tell")
    ends(executor)
    lost = executor.submit("first", 0, "tell")
    kept = executor.submit("first", 1, "tell")
    executor.replace("first", 0)
    fresh = executor.submit("first", 0, "tell")
    found = ends(executor)
    assert isinstance(found[lost].error, WorkerDiedError)
    assert found[kept].value == ("f1", 1)
    assert found[fresh].value == ("f0", 1)


def test_closing_closes_every_worker_that_was_made(executor):
    executor.submit("first", 0, "tell")
    executor.submit("second", 0, "tell")
    ends(executor)
    executor.close()
    assert Teller.closed == 2


def test_later_stages_go_first_inline():
    executor = InlineExecutor()
    executor.add_pool("first", [WorkerSpec(Teller, ("f",))])
    executor.add_pool("second", [WorkerSpec(Teller, ("s",))])
    executor.submit("first", 0, "tell")
    executor.submit("second", 0, "tell")
    assert executor.wait(0)[0].value[0] == "s"


def test_a_scripted_death_takes_the_queue_along_and_calls_to_the_dead_die():
    executor = ScriptedExecutor()
    executor.add_pool("only", [WorkerSpec(Teller, ("o",))])
    tickets = [executor.submit("only", 0, method) for method in ("tell", "die", "tell")]
    found = {}
    while len(found) < 3:
        found |= {one.ticket: one for one in executor.wait(0)}
    tickets.append(executor.submit("only", 0, "tell"))
    found |= ends(executor)
    assert [found[t].error is None for t in tickets] == [True, False, False, False]
    executor.replace("only", 0)
    assert executor.replaced == [("only", 0)]
    assert ends(executor) == {}


def test_scripted_accidents_happen_before_or_after_the_work():
    kinds = iter(["fail", "fail-after", None])
    executor = ScriptedExecutor(accident=lambda _: next(kinds))
    executor.add_pool("only", [WorkerSpec(Teller, ("o",))])
    tickets = [executor.submit("only", 0, "tell") for _ in range(3)]
    found = ends(executor)
    assert [found[t].error is None for t in tickets] == [False, False, True]
    # The second one was carried out although its reply was lost.
    assert found[tickets[2]].value == ("o", 2)


class Waiter(Teller):
    """Waits for what the test opens."""

    def __init__(self, opened, meeting):
        Teller.__init__(self, "w")
        self._opened, self._meeting = opened, meeting

    def hold(self, word):
        assert self._opened.wait(20)
        return word

    def meet(self):
        return self._meeting.wait(20) >= 0

    def break_down_later(self):
        assert self._opened.wait(20)
        raise ZeroDivisionError("a bug")


@pytest.fixture
def waiting():
    executor = WaitingExecutor()
    opened = threading.Event()
    spec = WorkerSpec(Waiter, (opened, threading.Barrier(2)), at_a_time=2)
    executor.add_pool("waits", [spec])
    executor.add_pool("computes", [WorkerSpec(Teller, ("c",))])
    yield executor, opened
    opened.set()
    executor.close()


def all_ends(executor, count):
    found = {}
    while len(found) < count:
        found |= {one.ticket: one for one in executor.wait(20)}
    return found


def test_calls_of_a_worker_that_runs_several_go_on_beside_each_other(waiting):
    executor, _ = waiting
    tickets = [executor.submit("waits", 0, "meet") for _ in range(2)]
    found = all_ends(executor, 2)
    assert [found[t].value for t in tickets] == [True, True]
    # Whichever came first, one worker was made.
    assert Teller.made == 1


class Caller(Teller):
    """Is built with the help of another worker, which it calls from a thread of its own."""

    def __init__(self, line):
        Teller.__init__(self, "caller")
        with ThreadPoolExecutor() as threads:
            self.heard = threads.submit(line.call, "tell", "me").result(20)

    def repeat(self):
        return self.heard


def test_a_worker_may_call_another_while_it_is_built(waiting):
    executor, _ = waiting
    executor.add_pool("calls", [WorkerSpec(Caller, (executor.line("computes", 0),))])
    ticket = executor.submit("calls", 0, "repeat")
    assert all_ends(executor, 1)[ticket].value == ("c", 1, "me")


class SlowToBuild(Teller):
    """Is built when the test opens it; fails to be built the first time it is told to."""

    failures = 0

    def __init__(self, begun, opened):
        begun.set()
        assert opened.wait(20)
        if SlowToBuild.failures:
            SlowToBuild.failures -= 1
            raise TransientError("not yet")
        Teller.__init__(self, "slow")


@pytest.mark.parametrize("failures", [0, 1])
def test_workers_that_are_started_are_built_beside_what_goes_on(waiting, failures):
    executor, opened = waiting
    SlowToBuild.failures = failures
    begun = threading.Event()
    executor.add_pool("slow", [WorkerSpec(SlowToBuild, (begun, opened))])
    executor.start("slow")
    told = executor.submit("computes", 0, "tell")
    assert [done.ticket for done in executor.wait(20)] == [told]
    assert begun.wait(20)
    opened.set()
    ticket = executor.submit("slow", 0, "tell")
    # What failed meanwhile is tried again by the first call, which would tell of it.
    assert all_ends(executor, 1)[ticket].value == ("slow", 1)
    assert SlowToBuild.failures == 0


def test_a_worker_that_is_still_built_when_its_pool_is_declared_anew_is_none_of_the_new_ones(
    waiting,
):
    executor, opened = waiting
    SlowToBuild.failures = 0
    executor.add_pool("slow", [WorkerSpec(SlowToBuild, (threading.Event(), opened))])
    executor.start("slow")
    threading.Timer(0.05, opened.set).start()
    executor.add_pool("slow", [WorkerSpec(Teller, ("new",))])
    ticket = executor.submit("slow", 0, "tell")
    assert all_ends(executor, 1)[ticket].value == ("new", 1)
    assert Teller.closed == 1


def test_what_computes_goes_on_while_others_wait(waiting):
    executor, opened = waiting
    held = [executor.submit("waits", 0, "hold", word) for word in "abc"]
    told = [executor.submit("computes", 0, "tell", word) for word in "xyz"]
    found = all_ends(executor, 3)
    assert sorted(found) == told
    assert executor.wait(0) == []
    opened.set()
    found = all_ends(executor, 3)
    assert [found[t].value for t in held] == ["a", "b", "c"]


def test_a_bug_beside_is_not_taken_for_an_outcome(waiting):
    executor, opened = waiting
    executor.submit("waits", 0, "break_down_later")
    assert executor.wait(0) == []
    opened.set()
    with pytest.raises(ZeroDivisionError):
        executor.wait(20)


def test_of_a_worker_that_is_replaced_calls_that_run_end_and_queued_ones_die(waiting):
    executor, opened = waiting
    held = [executor.submit("waits", 0, "hold", word) for word in "abc"]
    opened.set()
    executor.replace("waits", 0)
    found = all_ends(executor, 3)
    assert [found[t].value for t in held] == ["a", "b", None]
    assert isinstance(found[held[2]].error, WorkerDiedError)
    assert not found[held[2]].error.running
    assert Teller.closed == 1


def test_calls_that_wait_when_their_pool_is_declared_anew_are_nobodys(waiting):
    executor, opened = waiting
    held = [executor.submit("waits", 0, "hold", word) for word in "abc"]
    executor.add_pool("waits", ())
    opened.set()
    assert sorted(all_ends(executor, 2)) == held[:2]
    assert executor.wait(0) == []


def test_closing_lets_what_runs_come_to_its_end(waiting):
    executor, opened = waiting
    held = [executor.submit("waits", 0, "hold", word) for word in "abc"]
    threading.Timer(0.05, opened.set).start()
    executor.close()
    found = executor.wait(0)
    assert [done.value for done in found] == ["a", "b"]
    assert held[2] not in {done.ticket for done in found}
    assert Teller.closed == 1
