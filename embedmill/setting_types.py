"""What settings are made of: frozen, strict sections; names; references to secrets."""

from __future__ import annotations

import re
from typing import Annotated, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    StringConstraints,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import PydanticCustomError

from embedmill.redaction import secret_in

NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$"
SECRET_PATTERN = r"^\$\{[A-Za-z_][A-Za-z0-9_]*\}$"  # noqa: S105 (the form of a reference)

MOST = 2**63 - 1

Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
NonEmpty = Annotated[str, StringConstraints(min_length=1)]
# "${NAME}": the settings carry the name of an environment variable, never what is in it.
SecretRef = Annotated[str, StringConstraints(pattern=SECRET_PATTERN)]


def is_secret(field: FieldInfo) -> bool:
    """Whether the field names an environment variable (a :data:`SecretRef`)."""
    return SecretRef in get_args(field.annotation) or any(
        getattr(part, "pattern", None) == SECRET_PATTERN for part in field.metadata
    )


class Frozen(BaseModel):
    """A settings value: immutable, unknown keys refused, no guessing between types."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
    )

    @field_validator("*", mode="after")
    @classmethod
    def _no_secret_in_plain_sight(cls, value: object, info: ValidationInfo) -> object:
        field = cls.model_fields[info.field_name] if info.field_name else None
        if field is None or is_secret(field):
            return value
        for text in value if isinstance(value, tuple) else (value,):
            if isinstance(text, str):
                _refuse_secret(text)
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _no_number_of_more_than_64_bits(cls, value: object) -> object:
        # Neither stores nor files can hold one.
        if isinstance(value, int) and value > MOST:
            raise PydanticCustomError("too_large", "must be at most {most}", {"most": MOST})
        return value


def _refuse_secret(text: str) -> None:
    variable = re.search(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", text)
    if variable:
        raise PydanticCustomError(
            "misplaced_secret",
            "{variable} stands where no secret is expected; only secrets may be variables",
            {"variable": variable.group()},
        )
    kind = secret_in(text)
    if kind:
        raise PydanticCustomError(
            "misplaced_secret",
            "looks like a secret ({kind}); settings never hold one, it stays in an environment "
            "variable",
            {"kind": kind},
        )
