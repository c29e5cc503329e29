"""Settings of a place for files: a folder, or a bucket."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty, SecretRef


class WorkspaceSettings(Frozen):
    """Where all state lives: a local folder, or a bucket by URL."""

    url: NonEmpty = Field(description="Folder, `file://`, `s3://`, `gs://` or `az://` address.")
    endpoint: str | None = Field(default=None, description="Of an S3-compatible server.")
    region: str | None = Field(default=None, description="Of the bucket.")
    access_key: SecretRef | None = Field(
        default=None,
        description="`${NAME}` of an environment variable; else the cloud's own chain.",
    )
    secret_key: SecretRef | None = Field(
        default=None, description="`${NAME}` of an environment variable."
    )
    allow_http: bool = Field(default=False, description="Plain HTTP, for servers on loopback.")

    # Here and not on Settings: a validator that runs before the root would leave JSON mode, and
    # strict models then refuse every list where a tuple is meant.
    @model_validator(mode="before")
    @classmethod
    def _url_alone(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _each_key_has_an_effect(self) -> Self:
        s3_only = ("endpoint", "region", "access_key", "secret_key", "allow_http")
        idle = [name for name in s3_only if getattr(self, name)]
        if idle and not self.url.startswith("s3://"):
            raise PydanticCustomError(
                "no_effect",
                "{keys} would have no effect: only an s3:// address takes them",
                {"keys": ", ".join(idle)},
            )
        if (self.access_key is None) != (self.secret_key is None):
            raise PydanticCustomError("pair", "access_key and secret_key go together")
        return self
