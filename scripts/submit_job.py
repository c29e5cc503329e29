#!/usr/bin/env python3
"""Submit an embedmill command as a Ray job and follow it to its end; see scripts/submit."""

from __future__ import annotations

import argparse
import logging
import os
import shlex
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ray.job_submission import JobSubmissionClient

ROOT = Path(__file__).resolve().parents[1]
DESCRIPTION = """\
Submit an embedmill command as a Ray job: the code of this folder is uploaded and runs on the
cluster, settings files included. Paths in the settings are the cluster's: give absolute paths or
buckets for source, workspace and store, since the uploaded folder is gone when the job ends.

  scripts/submit ingest configs/table_hashing.yaml --set source.path=/data/rows.jsonl
  scripts/submit --no-wait ingest /mnt/shared/index.yaml --tolerate-dead
"""
EPILOG = """\
exit status: the command's own (0 all well, 3 some rows died, ...), 75 when the job was stopped,
4 when there is no cluster or it refuses the job, 1 when the cluster lost it, 130 or 143 when this
command was interrupted: the job goes on. Ray itself knows only success and failure; with
--tolerate-dead a job with dead letters is a success. Stop a job with: ray job stop ID. It is
resumed by submitting the same command again. Libraries come from the cluster's Python
environment, keys from its environment variables: neither is sent. A cluster with token
authentication needs RAY_AUTH_MODE=token and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH here.
"""
# From asking to stop until the kill. A run waits 20 s for what is in flight, then ends its workers
# and writes its report; Ray's own 3 s are too short even for that.
STOP_WAIT_S = 30
# Logs are read whole each time.
LOGS_EVERY_S = 5.0
# A cluster that does not answer for this long is given up on; the job may go on.
SILENCE_S = 60.0
REFUSED, STOPPED = 4, 75


class NotSubmittedError(Exception):
    """There is no job; says what to type next."""

    def __init__(self, what: str, *, next_step: str) -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step


class UnfollowedError(Exception):
    """A signal has asked this command to end; the job goes on."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Options before the command, and the command."""
    parser = argparse.ArgumentParser(
        prog="scripts/submit",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--address",
        default=os.environ.get("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:8265"),
        help="of the cluster's dashboard (RAY_API_SERVER_ADDRESS; %(default)s)",
    )
    parser.add_argument("--id", help="of the job; a cluster takes each id once")
    parser.add_argument("--no-wait", action="store_true", help="print the job's id and return")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="as typed after `embedmill`")
    options = parser.parse_args(arguments)
    if not options.command:
        parser.error("what is to be run? for instance: ingest configs/folder.yaml")
    return options


def main() -> int:
    """Submit and follow; the exit status."""
    options = parsed(sys.argv[1:])
    try:
        address = http_address(options.address)
        require_uploaded(options.command)
        client, job = submitted(address, options)
    except NotSubmittedError as error:
        tell(error.what, error.next_step)
        return REFUSED
    if options.no_wait:
        print(job)
        return 0
    print(f"job {job}", file=sys.stderr)
    return followed(client, job, address)


def http_address(typed: str) -> str:
    """The address of a dashboard.

    Raises:
        NotSubmittedError: it is that of something else, such as a Ray client.
    """
    scheme, separator, _ = typed.partition("://")
    if scheme in {"http", "https"} and separator:
        return typed
    if ":" in typed and not separator:
        return f"http://{typed}"
    raise NotSubmittedError(
        f"{typed} is no address of a dashboard",
        next_step="name that of the head: --address http://HEAD:8265",
    )


def require_uploaded(command: list[str]) -> None:
    """Refuse a settings file that is here, under a path that the uploaded folder does not have.

    Raises:
        NotSubmittedError: there is one.
    """
    for word in command:
        typed = word.partition("=")[2] if word.startswith("--") and "=" in word else word
        file = Path(typed)
        if file.suffix not in {".yaml", ".yml"} or not file.is_file() or (ROOT / file).is_file():
            continue
        if file.resolve().is_relative_to(ROOT):
            raise NotSubmittedError(
                f"the job runs in the copy of {ROOT}, where there is no {typed}",
                next_step=f"name it as it is called from there: {file.resolve().relative_to(ROOT)}",
            )
        raise NotSubmittedError(
            f"{typed} is not below {ROOT}, which is all that the job has of this machine",
            next_step="copy it there, or name a path that the machines of the cluster see",
        )


def submitted(address: str, options: argparse.Namespace) -> tuple[JobSubmissionClient, str]:
    """Upload this folder and submit the command; a client, and the id of the job.

    Raises:
        NotSubmittedError: there is no cluster, or it refuses the job.
    """
    # Ray takes what the variable says before what it is given.
    os.environ["RAY_API_SERVER_ADDRESS"] = address
    from ray.exceptions import AuthenticationError
    from ray.job_submission import JobSubmissionClient

    # They tell of every step, and at each upload that .venv stays here.
    logging.getLogger("ray").setLevel(logging.ERROR)
    logging.getLogger("ray.dashboard.modules.dashboard_sdk").setLevel(logging.ERROR)
    try:
        client = JobSubmissionClient(address)
        return client, client.submit_job(
            entrypoint=shlex.join(["python", "-m", "pipelines.cli", *options.command]),
            submission_id=options.id,
            runtime_env={
                "working_dir": str(ROOT),
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_WAIT_S)},
            },
        )
    except AuthenticationError as error:
        raise NotSubmittedError(
            f"{address}: {last_words(str(error).partition('. ')[0])}",
            next_step="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH as the "
            "cluster has",
        ) from error
    except ConnectionError as error:
        raise NotSubmittedError(
            str(error), next_step="see that the cluster runs, and name its dashboard: --address"
        ) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise NotSubmittedError(
            f"{address}: {last_words(str(error))}",
            next_step="change what it says and submit again; ray job list shows what there is",
        ) from error


def followed(client: JobSubmissionClient, job: str, address: str) -> int:
    """Follow a job to its end, or until a signal; the exit status."""

    def end(number: int, _: FrameType | None) -> None:
        raise UnfollowedError(number)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    try:
        return Follower(client, job).follow()
    except UnfollowedError as asked:
        print(
            f"only this command has ended: job {job} goes on\n"
            f"  to see it: ray job logs --follow --address {address} {job}\n"
            f"  to stop it: ray job stop --address {address} {job}",
            file=sys.stderr,
        )
        return 128 + asked.number


def tell(what: str, next_step: str) -> None:
    """Say what is wrong as the commands themselves do."""
    print(f"error: {what}\n  next: {next_step}", file=sys.stderr)


def last_words(text: str) -> str:
    """The last line that says something: a cluster's errors are tracebacks."""
    lines = [line.strip() for line in text.splitlines()]
    return next((line for line in reversed(lines) if line.strip(".")), "no reason given")


class Follower:
    """Prints what a job prints, until it ends."""

    def __init__(self, client: JobSubmissionClient, job: str) -> None:
        self._client = client
        self._job = job
        self._printed = 0
        self._heard = time.monotonic()

    def follow(self) -> int:
        """Return the exit status that fits the job's end."""
        from ray.job_submission import JobStatus

        logs_at = time.monotonic() + LOGS_EVERY_S
        while True:
            try:
                # The state first: the log of a job that has ended is complete.
                info = self._client.get_job_info(self._job)
                if info.status.is_terminal() or time.monotonic() >= logs_at:
                    self._print_new_logs()
                    logs_at = time.monotonic() + LOGS_EVERY_S
                self._heard = time.monotonic()
            except (OSError, RuntimeError) as error:
                # requests has a ConnectionError of its own.
                if time.monotonic() - self._heard > SILENCE_S:
                    tell(
                        f"the cluster does not answer: {last_words(str(error))}",
                        f"job {self._job} may go on; when it answers: ray job status {self._job}",
                    )
                    return 1
            else:
                if info.status == JobStatus.STOPPED:
                    return STOPPED
                if info.status.is_terminal():
                    return self._exit_status(info.driver_exit_code, info.message or "")
            time.sleep(1.0)

    def _exit_status(self, driver_exit_code: int | None, message: str) -> int:
        if driver_exit_code is None:
            print(message, file=sys.stderr)
            return 1
        return driver_exit_code

    def _print_new_logs(self) -> None:
        logs = self._client.get_job_logs(self._job)
        sys.stdout.write(logs[self._printed :])
        sys.stdout.flush()
        self._printed = len(logs)


if __name__ == "__main__":
    sys.exit(main())
