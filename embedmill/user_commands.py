"""Commands that a person has configured: checks of a watch, hooks."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence


def command_problem(
    command: str | Sequence[str],
    *,
    timeout_s: float,
    given: bytes = b"",
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run a command; what went wrong, or nothing.

    One that takes too long is ended with all that it has started: what it left behind would run on
    beside the next try, and the ones after it.

    Args:
        command: text for the shell, or a program and its arguments.
        timeout_s: seconds that it may take.
        given: its standard input.
        variables: of its environment, beside our own.
    """
    try:
        process = subprocess.Popen(  # noqa: S603 - a person has said which command
            command,
            shell=isinstance(command, str),
            env={**os.environ, **(variables or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        return f"{type(error).__name__}: {error}"
    with process:
        try:
            output, complaints = process.communicate(given, timeout_s)
        except subprocess.TimeoutExpired:
            return f"no answer within {timeout_s:g} s"
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    if process.returncode == 0:
        return ""
    said = (complaints or output).decode(errors="replace").strip().splitlines()
    return f"status {process.returncode}" + (f": {said[-1][:200]}" if said else "")
