"""The Ray executor: the one module that spawns, waits for and ends actors.

Actors own nothing but a model or a client. They are never restarted or retried by Ray
(``max_restarts=0``, ``max_task_retries=0``), so that every attempt is counted by the driver; but
for those that serve others and hold no rows. Every start and every call has a deadline; an actor
that misses it is ended and reported as dead.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import psutil
import ray
from ray import exceptions as ray_errors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.actor_errors import Address, cannot_start, cause_of, died
from actors.actor_state import ActorState
from actors.host import Note, host_of
from actors.ray_session import RaySession
from embedmill.errors import (
    RefusedError,
    StopRunError,
    TransientError,
    WorkerDiedError,
)
from embedmill.executor import Done, Line, WorkerSpec

T = TypeVar("T")
log = logging.getLogger(__name__)
# An ended actor's process is gone within about 0.1 s; files it had locked are free then.
_GONE_TIMEOUT_S = 10.0
# For a process to start and look around; a node that takes longer is not waited for.
_LOOK_TIMEOUT_S = 60.0
# For the answer of a worker that serves others: it does nothing that takes long.
_LINE_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that an actor may take.

    Attributes:
        start: until its process runs.
        call: for building the worker (loading a model), and for each call.
    """

    start: float = 180.0
    call: float = 900.0


class RayExecutor:
    """Runs workers as Ray actors, on a Ray of its own or on a cluster."""

    name = "ray"

    def __init__(
        self,
        session: RaySession | None = None,
        *,
        address: str | None = None,
        object_store_bytes: int = 512 * 2**20,
        deadlines: Deadlines | None = None,
        cpus: int | None = None,
    ) -> None:
        """Connect.

        Args:
            session: a connection that exists and outlives this executor; without it one of its
                own, as the other arguments say (see ``RaySession``).
            address: of a cluster.
            object_store_bytes: shared memory of a Ray of our own.
            deadlines: of actors.
            cpus: logical cores of a Ray of our own.

        Raises:
            RefusedError: there is no cluster at the address.
        """
        self._deadlines = deadlines or Deadlines()
        self._specs: dict[str, list[WorkerSpec]] = {}
        self._actors: dict[Address, ActorState] = {}
        self._refs: dict[Any, tuple[int, ActorState]] = {}
        self._parts: dict[int, tuple[Any, ...]] = {}
        self._tickets = 0
        self._closes_session = session is None
        self._session = session or RaySession(
            address=address, object_store_bytes=object_store_bytes, cpus=cpus
        )

    @property
    def cores(self) -> int:
        """Logical cores of the cluster."""
        return int(_resources().get("CPU", 1))

    @property
    def node_cores(self) -> Sequence[int]:
        """Logical cores of each node that has any."""
        nodes: Any = ray.nodes
        found = [int(node["Resources"].get("CPU", 0)) for node in nodes() if node["Alive"]]
        return [cores for cores in found if cores]

    def elsewhere(self, look: Callable[..., T], *arguments: object) -> Mapping[str, T]:
        """See ``Executor.elsewhere``."""
        here = ray.get_runtime_context().get_node_id()
        nodes: Any = ray.nodes
        others = [node["NodeID"] for node in nodes() if node["Alive"] and node["NodeID"] != here]
        task = ray.remote(look)
        asked = {
            task.options(
                num_cpus=0,
                max_retries=0,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            ).remote(*arguments): node
            for node in others
        }
        found: dict[str, T] = {}
        refs = list(asked)
        ready = ray.wait(refs, num_returns=len(refs), timeout=_LOOK_TIMEOUT_S)[0] if refs else []
        for ref in ready:
            # A node that is gone has nothing to say.
            with contextlib.suppress(ray_errors.RayError):
                found[asked[ref]] = ray.get(ref, timeout=_LINE_TIMEOUT_S)
        silent = [node[:8] for node in others if node not in found]
        if silent:
            log.warning("not looked at, since they do not answer: nodes %s", ", ".join(silent))
        return found

    def add_pool(self, pool: str, specs: Sequence[WorkerSpec]) -> None:
        """See ``Executor.add_pool``.

        Raises:
            RefusedError: the cluster can never hold the pool.
        """
        self._end([address for address in self._actors if address[0] == pool])
        self._specs[pool] = list(specs)
        total = _resources()
        for resource, name in (("cpus", "CPU"), ("gpus", "GPU")):
            wanted = sum(getattr(spec, resource) for spec in specs)
            if wanted > total.get(name, 0):
                raise RefusedError(
                    f"the {pool} pool wants {wanted:g} {name}, the cluster has "
                    f"{total.get(name, 0):g}",
                    code="infeasible",
                    hint=f"set run.{pool}_workers lower, or add nodes",
                )

    def start(self, pool: str) -> None:
        """See ``Executor.start``."""
        for worker in range(len(self._specs[pool])):
            if (pool, worker) not in self._actors:
                self._spawn((pool, worker))

    def submit(
        self, pool: str, worker: int, method: str, *arguments: object, parts: int = 0
    ) -> int:
        """See ``Executor.submit``."""
        address = (pool, worker)
        actor = self._actors.get(address) or self._spawn(address)
        self._tickets += 1
        bound = actor.handle.run.options(num_returns=parts + 2)
        value, *others, notes = bound.remote(method, parts, *arguments)
        self._refs[value] = (self._tickets, actor)
        self._parts[self._tickets] = tuple(others)
        if not actor.calls:
            actor.since = time.monotonic()
        actor.calls[self._tickets] = notes
        return self._tickets

    def _spawn(self, address: Address) -> ActorState:
        spec = self._specs[address[0]][address[1]]
        options = {
            "num_cpus": spec.cpus,
            "num_gpus": spec.gpus,
            # A worker that serves holds no rows: nobody need be told when Ray puts up another.
            "max_restarts": -1 if spec.serves else 0,
            "max_task_retries": -1 if spec.serves else 0,
            "max_concurrency": spec.at_a_time,
        }
        spawn = ray.remote(host_of(spec)).options(**options).remote
        handle: Any = spawn(spec, logging.getLogger("actors").getEffectiveLevel())
        process, built = handle.process.remote(), handle.build.remote()
        actor = ActorState(address, handle, process, built, time.monotonic(), spec.at_a_time)
        self._actors[address] = actor
        return actor

    def wait(self, timeout_s: float) -> list[Done]:
        """See ``Executor.wait``.

        When a worker dies, Ray may report a call that was queued before the one that ran: of a
        worker that runs one call at a time, whose end is known early waits for its elders.
        """
        deadline = time.monotonic() + timeout_s
        while self._refs:
            left = max(0.0, deadline - time.monotonic())
            refs = list(self._refs)
            ready, _ = ray.wait(refs, num_returns=1, timeout=left, fetch_local=False)
            if ready:
                ready, _ = ray.wait(refs, num_returns=len(refs), timeout=0, fetch_local=False)
            self._watch()
            ended = [(*self._refs.pop(ref), ref) for ref in ready]
            for ticket, actor, ref in ended:
                actor.ended[ticket] = ref
            turn = {t: (actor, ref) for _, actor, _ in ended for t, ref in actor.in_turn()}
            if turn or not ready:
                return [self._done(ticket, *turn[ticket]) for ticket in sorted(turn)]
        return []

    def wait_for_running(self, timeout_s: float) -> list[Done] | None:
        """See ``Executor.wait_for_running``; what is queued at an actor runs as well."""
        return self.wait(timeout_s)

    def _done(self, ticket: int, actor: ActorState, ref: ray.ObjectRef[Any]) -> Done:
        notes_ref = actor.take(ticket)
        parts = self._parts.pop(ticket)
        try:
            value, notes = ray.get([ref, notes_ref], timeout=60)
        except ray_errors.RayTaskError as error:
            return Done(ticket, error=cause_of(error))
        except ray_errors.RayError as error:
            if getattr(error, "actor_init_failed", False):
                return Done(ticket, error=cannot_start(actor.address, error))
            running = _is_by_its_call(actor, error)
            process = actor.process[0] if actor.process else None
            message = died(actor.address, process, error, self._session.last_words)
            return Done(ticket, error=WorkerDiedError(message, running=running))
        actor.built = True
        _pass_on(actor, notes)
        return Done(ticket, value, parts)

    def _watch(self) -> None:
        """End actors that missed a deadline; their calls then end as died."""
        now = time.monotonic()
        for actor in self._actors.values():
            if actor.process is None:
                self._note_process(actor, now)
                continue
            if not actor.built and _is_built(actor):
                actor.built, actor.since = True, now
            if actor.calls and now - actor.since > self._deadlines.call:
                log.warning("%s worker %d is silent for %.0f s", *actor.address, now - actor.since)
                actor.since = now
                ray.kill(actor.handle)

    def _note_process(self, actor: ActorState, now: float) -> None:
        ready, _ = ray.wait([actor.process_ref], timeout=0)
        if ready:
            # A worker that died at once is reported through its call.
            with contextlib.suppress(ray_errors.RayError):
                actor.process = ray.get(actor.process_ref, timeout=10)
                actor.since = now
        elif now - actor.started > self._deadlines.start:
            free = _resources(free=True)
            pool, worker = actor.address
            raise StopRunError(
                f"{pool} worker {worker} did not start within {self._deadlines.start:g} s; the "
                f"cluster has {free.get('CPU', 0):g} CPU and {free.get('GPU', 0):g} GPU free",
                code="start-deadline",
                hint=f"free resources, or set run.{pool}_workers lower",
            )

    def line(self, pool: str, worker: int) -> Line:
        """See ``Executor.line``."""
        address = (pool, worker)
        return _RayLine((self._actors.get(address) or self._spawn(address)).handle)

    def replace(self, pool: str, worker: int) -> None:
        """See ``Executor.replace``; returns when the old process is gone, where it can be seen."""
        old = self._actors.pop((pool, worker), None)
        if old is not None:
            _kill([old])

    def process_of(self, pool: str, worker: int) -> int | None:
        """Process id of a worker; None when there is none, or it has only just been asked for."""
        actor = self._actors.get((pool, worker))
        if actor is None:
            return None
        if actor.process is None:
            # One that has answered has said it; that may be on its way still.
            ray.wait([actor.process_ref], timeout=0.5)
            self._note_process(actor, time.monotonic())
        return actor.process[0] if actor.process is not None else None

    def close(self) -> None:
        """See ``Executor.close``; idle workers get 10 s to close their clients."""
        try:
            self._end(list(self._actors))
        finally:
            self._refs.clear()
            self._parts.clear()
            if self._closes_session:
                self._session.close()

    def _end(self, addresses: Sequence[Address]) -> None:
        actors = [self._actors.pop(address) for address in addresses]
        ends = [actor.handle.end.remote() for actor in actors if not actor.calls]
        if ends:
            ray.wait(ends, num_returns=len(ends), timeout=_GONE_TIMEOUT_S)
        _kill(actors)


@dataclass(frozen=True, slots=True)
class _RayLine:
    handle: Any

    def call(self, method: str, *arguments: object) -> Any:  # noqa: ANN401 - what it returns
        """See ``Line``."""
        try:
            value, notes = ray.get(
                self.handle.run.remote(method, 0, *arguments), timeout=_LINE_TIMEOUT_S
            )
        except ray_errors.RayTaskError as error:
            raise cause_of(error) from error
        except ray_errors.RayError as error:
            raise TransientError(f"{method}: {type(error).__name__}", code="line") from error
        for level, name, text in notes:
            logging.getLogger(name).log(level, "%s", text)
        return value


def _kill(actors: Sequence[ActorState]) -> None:
    """End actors; return when their processes are gone, where that can be seen."""
    for actor in actors:
        ray.kill(actor.handle)
    here = ray.get_runtime_context().get_node_id()
    pids = [actor.process[0] for actor in actors if actor.process and actor.process[1] == here]
    deadline = time.monotonic() + _GONE_TIMEOUT_S
    while any(psutil.pid_exists(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.02)


def _is_built(actor: ActorState) -> bool:
    ready, _ = ray.wait([actor.built_ref], timeout=0)
    if ready:
        # What building raised is raised again by the call.
        with contextlib.suppress(ray_errors.RayError):
            ray.get(actor.built_ref, timeout=10)
            return True
    return False


def _is_by_its_call(actor: ActorState, error: ray_errors.RayError) -> bool:
    """Whether the call that ran may have ended the actor; else no row may be blamed for it."""
    if not isinstance(error, ray_errors.ActorDiedError | ray_errors.OutOfMemoryError):
        # The actor is out of reach, or its answer is.
        return False
    if getattr(error, "preempted", False) or not (actor.built or _is_built(actor)):
        return False
    nodes: Any = ray.nodes
    alive = {node["NodeID"] for node in nodes() if node["Alive"]}
    return actor.process is None or actor.process[1] in alive


def _resources(*, free: bool = False) -> dict[str, float]:
    read: Any = ray.available_resources if free else ray.cluster_resources
    return dict(read())


def _pass_on(actor: ActorState, notes: Sequence[Note]) -> None:
    for level, name, text in notes:
        logging.getLogger(name).log(level, "%s worker %d: %s", *actor.address, text)
