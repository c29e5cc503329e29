"""What the driver knows of one actor: its process, and its calls in their order."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from actors.actor_errors import Address


@dataclass(slots=True, eq=False)
class ActorState:
    """One actor, and its calls in the order in which they were made.

    Attributes:
        address: pool and worker.
        handle: Ray's.
        process_ref: tells its process id and node.
        built_ref: tells that its worker is built.
        started: when it was asked for.
        at_a_time: calls that it runs at a time.
        process: its process id and node, once known.
        built: whether its worker is built.
        calls: tickets of its calls, oldest first, with the reference to the notes of each.
        ended: of these, the ones whose end is known, with the reference to what they returned.
        since: when its oldest call began, or became the oldest.
    """

    address: Address
    handle: Any
    process_ref: Any
    built_ref: Any
    started: float
    at_a_time: int = 1
    process: tuple[int, str] | None = None
    built: bool = False
    calls: dict[int, Any] = field(default_factory=dict)
    ended: dict[int, Any] = field(default_factory=dict)
    since: float = 0.0

    def in_turn(self) -> list[tuple[int, Any]]:
        """Take the calls that have ended; of one call at a time only those without open elders."""
        turn = []
        for ticket in self.calls:
            if ticket in self.ended:
                turn.append((ticket, self.ended.pop(ticket)))
            elif self.at_a_time == 1:
                break
        return turn

    def take(self, ticket: int) -> Any:  # noqa: ANN401 - Ray's reference
        """Forget a call that has ended; returns the reference to its notes."""
        if ticket == next(iter(self.calls)):
            self.since = time.monotonic()
        return self.calls.pop(ticket)
