"""What the errors of stores on servers have in common: their words, and what is left unclear."""

from __future__ import annotations

from typing import Literal

from embedmill.errors import EmbedmillError, OutcomeUnknownError, TransientError
from embedmill.redaction import redacted

# What a call does: ``read`` changes nothing, ``change`` a collection or alias, ``write`` records.
Effect = Literal["read", "change", "write"]
CREDENTIALS_HINT = "check store.api_key and what it may do"
FULL_HINT = "make room on the server's disk"
_LONGEST = 400


def cleaned(text: str, *secrets: str) -> str:
    """A message of the server's or of the client's, short and without the keys."""
    for secret in filter(None, secrets):
        text = text.replace(secret, "***")
    text = redacted(" ".join(text.split()))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def unclear(message: str, code: str, effect: Effect, hint: str = "") -> EmbedmillError:
    """The error of a call whose end is not known: a question is asked again, a change may be."""
    if effect == "read":
        return TransientError(message, code=code, hint=hint)
    return OutcomeUnknownError(message, code=code, hint=hint)
