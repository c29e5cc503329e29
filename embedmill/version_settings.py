"""Settings of an index's versions: how long they are kept, and who is told of them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty, SecretRef

HookEvent = Literal["published", "restored", "failed"]
_ALL: tuple[HookEvent, ...] = ("published", "restored", "failed")


class KeepSettings(Frozen):
    """What `embedmill prune` leaves alone. What readers see is never touched."""

    versions: int = Field(
        default=1,
        ge=0,
        description="So many versions that readers saw before stay, the latest ones: a way back.",
    )
    days: float = Field(
        default=7.0, ge=0, description="A version stays for so many days after it was retired."
    )
    runs: int = Field(default=1000, ge=1, description="So many reports of runs stay, the latest.")


class WebhookSettings(Frozen):
    """An HTTP POST of the event as JSON; any status from 200 to 299 is an answer."""

    kind: Literal["webhook"]
    url: NonEmpty = Field(description="`http://` or `https://` address.")
    secret: SecretRef | None = Field(
        default=None,
        description="`${NAME}` of an environment variable; signs the body with HMAC-SHA256.",
    )
    events: tuple[HookEvent, ...] = Field(
        default=_ALL,
        min_length=1,
        description="`published`, `restored` (by a rollback), `failed` (not let through).",
    )
    tries: int = Field(default=5, ge=1, le=20, description="With growing pauses in between.")
    timeout_s: float = Field(default=10.0, gt=0, le=300, description="Of one try.")

    @field_validator("url")
    @classmethod
    def _is_http(cls, value: str) -> str:
        if not value.startswith(("http://", "https://")):
            raise PydanticCustomError("url", "must begin with http:// or https://")
        return value


class CommandHookSettings(Frozen):
    """A command that gets the event as JSON on its standard input; status 0 is an answer."""

    kind: Literal["command"]
    command: tuple[str, ...] = Field(
        min_length=1, description="Program and arguments; no shell reads them."
    )
    events: tuple[HookEvent, ...] = Field(
        default=_ALL,
        min_length=1,
        description="`published`, `restored` (by a rollback), `failed` (not let through).",
    )
    tries: int = Field(default=1, ge=1, le=20, description="With growing pauses in between.")
    timeout_s: float = Field(default=60.0, gt=0, le=3600, description="Of one try.")


HookSettings = Annotated[WebhookSettings | CommandHookSettings, Field(discriminator="kind")]
