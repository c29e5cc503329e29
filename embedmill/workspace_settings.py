"""Settings of a place for files: a folder, or a bucket."""

from __future__ import annotations

from typing import Annotated, Self, TypeAlias

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty, SecretRef

Endpoint: TypeAlias = Annotated[str | None, Field(description="Of an S3-compatible server.")]
Region: TypeAlias = Annotated[str | None, Field(description="Of the bucket.")]
AccessKey: TypeAlias = Annotated[
    SecretRef | None,
    Field(description="`${NAME}` of an environment variable; else the cloud's own chain."),
]
SecretKey: TypeAlias = Annotated[
    SecretRef | None, Field(description="`${NAME}` of an environment variable.")
]
AllowHttp: TypeAlias = Annotated[bool, Field(description="Plain HTTP, for servers on loopback.")]


_BUCKETS = ("s3://", "gs://", "az://")


def names_bucket(path: str) -> bool:
    """Whether it is the URL of a bucket."""
    return path.startswith(_BUCKETS)


class BucketAccess(Frozen):
    """How a bucket of S3 is reached, where the cloud's own chain does not say."""

    endpoint: Endpoint = None
    region: Region = None
    access_key: AccessKey = None
    secret_key: SecretKey = None
    allow_http: AllowHttp = False

    @model_validator(mode="after")
    def _keys_go_together(self) -> Self:
        _require_pair(self.access_key, self.secret_key)
        return self


def _require_pair(access_key: str | None, secret_key: str | None) -> None:
    if (access_key is None) != (secret_key is None):
        raise PydanticCustomError("pair", "access_key and secret_key go together")


class WorkspaceSettings(Frozen):
    """Where all state lives: a local folder, or a bucket by URL."""

    url: NonEmpty = Field(description="Folder, `file://`, `s3://`, `gs://` or `az://` address.")
    endpoint: Endpoint = None
    region: Region = None
    access_key: AccessKey = None
    secret_key: SecretKey = None
    allow_http: AllowHttp = False

    # Here and not on Settings: a validator that runs before the root would leave JSON mode, and
    # strict models then refuse every list where a tuple is meant.
    @model_validator(mode="before")
    @classmethod
    def _url_alone(cls, data: object) -> object:
        return {"url": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _each_key_has_an_effect(self) -> Self:
        idle = [name for name in BucketAccess.model_fields if getattr(self, name)]
        if idle and not self.url.startswith("s3://"):
            raise PydanticCustomError(
                "no_effect",
                "{keys} would have no effect: only an s3:// address takes them",
                {"keys": ", ".join(idle)},
            )
        _require_pair(self.access_key, self.secret_key)
        return self

    @property
    def access(self) -> BucketAccess:
        """How the bucket is reached."""
        return BucketAccess(
            endpoint=self.endpoint,
            region=self.region,
            access_key=self.access_key,
            secret_key=self.secret_key,
            allow_http=self.allow_http,
        )
