"""Secrets do not reach files, logs or messages: what looks like one is found and covered."""

from __future__ import annotations

import re

# A run of ten letters and digits with a digit among them, or of twenty: a key, not words.
_KEY_BODY = r"(?=[\w-]*?(?:(?=[A-Za-z]*[0-9])[A-Za-z0-9]{10}|[A-Za-z0-9]{20}))[\w-]{12,}"

# What each is called, and its form. The last group of a form is what is covered.
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("a password in an address", re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^\s/:@]*:[^\s/@]+)@")),
    ("an API key", re.compile(rf"(?<![A-Za-z0-9])((?:sk|pa)-{_KEY_BODY})")),
    (
        "an API key",
        re.compile(r"(?<![A-Za-z0-9])(pcsk_[A-Za-z0-9_]{20,}|(?:hf|gsk)_[A-Za-z0-9]{20,})"),
    ),
    ("an API key", re.compile(r"(?<![A-Za-z0-9])(AIza[\w-]{35})")),
    ("an AWS access key", re.compile(r"(?<![A-Za-z0-9])((?:AKIA|ASIA)[0-9A-Z]{16})(?![0-9A-Z])")),
    (
        "an access token",
        re.compile(r"(?<![A-Za-z0-9])((?:gh[opsu]_|github_pat_|glpat-|xox[abp]-)[\w-]{16,})"),
    ),
    ("a signed token", re.compile(r"(?<![A-Za-z0-9])(eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]*)")),
    (
        "a private key",
        re.compile(r"-----BEGIN [A-Z ]*(PRIVATE KEY-----.*?(?:-----END|\Z))", re.DOTALL),
    ),
    (
        "a secret in an address",
        re.compile(
            r"[?&](?:api[-_]?key|access[-_]?token|token|secret|password|sig|x-amz-signature)="
            r"([^\s&#]+)",
            re.IGNORECASE,
        ),
    ),
    (
        "a bearer token",
        re.compile(r"\b(?:bearer|basic)\s+(?=\S*[0-9])([\w.~+/=-]{16,})", re.IGNORECASE),
    ),
)


def secret_in(text: str) -> str | None:
    """Say what kind of secret ``text`` seems to hold, or None."""
    return next((kind for kind, form in _FORMS if form.search(text)), None)


def redacted(text: str) -> str:
    """Return ``text`` with all that looks like a secret covered by ``***``.

    For messages of others (servers, drivers) that go to a file or a screen: they like to repeat
    the request, key and all.
    """
    for _, form in _FORMS:
        text = form.sub(_covered, text)
    return text


def _covered(match: re.Match[str]) -> str:
    start, end = match.span(1)
    offset = match.start()
    return match.group()[: start - offset] + "***" + match.group()[end - offset :]
