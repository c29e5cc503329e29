"""Telling others which version readers see: webhooks and commands.

A publication is never undone, held up or hidden by whoever does not listen: what could not be told
is recorded beside the event, reported, and told again by the next command that publishes. The
event keeps its id, so that a listener who heard it twice can tell.
"""

from __future__ import annotations

import hmac
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from http.client import HTTPException
from typing import Any, assert_never

import orjson

from embedmill.errors import SettingsError
from embedmill.run_report import run_folder
from embedmill.sealed_json import sealed, unsealed
from embedmill.settings_file import resolve_secret
from embedmill.user_commands import command_problem
from embedmill.version_settings import CommandHookSettings, HookSettings, WebhookSettings
from embedmill.workspace import Workspace, create_once

log = logging.getLogger(__name__)
SIGNATURE = "X-Embedmill-Signature"
# Pauses before the second, third, ... try; the last one is repeated.
_PAUSES_S = (1.0, 4.0, 15.0, 60.0)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of telling one listener.

    Attributes:
        hook: which one, in words: an address or a program, no secret.
        delivered: it answered well.
        tries: so many.
        error: of the last try.
    """

    hook: str
    delivered: bool
    tries: int
    error: str = ""


def keep_event(workspace: Workspace, index: str, run: str, event: Mapping[str, Any]) -> None:
    """Leave an event in its run's folder; doing it again changes nothing."""
    create_once(workspace, f"{run_folder(index, run)}/event.json", sealed(event))


def kept_event(workspace: Workspace, index: str, run: str) -> dict[str, Any] | None:
    """The event of a run, or None."""
    path = f"{run_folder(index, run)}/event.json"
    data = workspace.read(path)
    return None if data is None else unsealed(data, path)


def announce(
    workspace: Workspace,
    index: str,
    run: str,
    hooks: Sequence[HookSettings],
    *,
    at: str,
    sleep: Callable[[float], None],
    holds: Callable[[], bool] = lambda: True,
) -> Sequence[Delivery]:
    """Tell all hooks that want the event of a run; whom it was told before is left out.

    Args:
        workspace: of the index.
        index: its name.
        run: that left an event.
        hooks: of the settings.
        at: UTC, ISO 8601; part of what is signed, so that old messages can be refused.
        sleep: waits between tries.
        holds: whether the event still says how things are; what does not is told to nobody, so
            that a listener never hears of it after what came later.

    Returns:
        What was tried now.
    """
    event = kept_event(workspace, index, run)
    if event is None:
        return ()
    deliveries = []
    for hook in hooks:
        path = f"{run_folder(index, run)}/told-{_key(hook)}.json"
        if event["event"] not in hook.events or workspace.read(path) is not None:
            continue
        delivery = _deliver(hook, event, at=at, sleep=sleep, holds=holds)
        if delivery is None:
            break
        deliveries.append(delivery)
        if delivery.delivered:
            create_once(workspace, path, sealed({**asdict(delivery), "at": at}))
        else:
            log.warning("%s was not told: %s", delivery.hook, delivery.error)
    return deliveries


def _key(hook: HookSettings) -> str:
    from embedmill.recipe import fingerprint_of

    target = hook.url if isinstance(hook, WebhookSettings) else list(hook.command)
    return fingerprint_of(target)


def _deliver(
    hook: HookSettings,
    event: Mapping[str, Any],
    *,
    at: str,
    sleep: Callable[[float], None],
    holds: Callable[[], bool],
) -> Delivery | None:
    """Tell one listener; None when the event holds no longer."""
    name = hook.url.split("?")[0] if isinstance(hook, WebhookSettings) else hook.command[0]
    body = orjson.dumps(event, option=orjson.OPT_SORT_KEYS)
    error = ""
    for tried in range(1, hook.tries + 1):
        if tried > 1:
            sleep(_PAUSES_S[min(tried - 2, len(_PAUSES_S) - 1)])
        if not holds():
            return None
        error = _told(hook, body, at)
        if not error:
            return Delivery(name, delivered=True, tries=tried)
    return Delivery(name, delivered=False, tries=hook.tries, error=error)


def _told(hook: HookSettings, body: bytes, at: str) -> str:
    """Tell once; what went wrong, or nothing."""
    match hook:
        case WebhookSettings():
            return _posted(hook, body, at)
        case CommandHookSettings():
            return command_problem(hook.command, timeout_s=hook.timeout_s, given=body)
        case _:
            assert_never(hook)


def signature(secret: str, at: str, body: bytes) -> str:
    """``t=TIME,v1=HEX``: HMAC-SHA256 over ``TIME.BODY``, for the header and for who checks it."""
    digest = hmac.new(secret.encode(), at.encode() + b"." + body, "sha256").hexdigest()
    return f"t={at},v1={digest}"


def _posted(hook: WebhookSettings, body: bytes, at: str) -> str:
    headers = {"Content-Type": "application/json", "User-Agent": "embedmill"}
    try:
        if hook.secret is not None:
            headers[SIGNATURE] = signature(resolve_secret(hook.secret), at, body)
        # The settings take http and https only.
        request = urllib.request.Request(hook.url, body, headers, method="POST")  # noqa: S310 - see above
        with _opener().open(request, timeout=hook.timeout_s) as reply:
            return "" if 200 <= reply.status < 300 else f"status {reply.status}"
    except SettingsError as error:
        return str(error)
    except urllib.error.HTTPError as error:
        with error:
            return f"status {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return f"{type(error).__name__}: {error}"


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would become a GET without the event."""

    def redirect_request(self, *_: object, **__: object) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)
