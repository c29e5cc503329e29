"""Opening buckets, and what their errors mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import ObjectStore, S3Store, from_url

from embedmill.errors import SettingsError, StopRunError, TransientError
from embedmill.settings_file import resolve_secret
from embedmill.workspace_settings import BucketAccess

if TYPE_CHECKING:
    # These names exist for type checkers only.
    from obstore.store import ClientConfig, S3Config

# What S3, Google and Azure answer when not the object is missing but what it should be in.
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound")


def open_object_store(url: str, access: BucketAccess, *, key: str) -> ObjectStore:
    """Open a bucket, or a prefix of one; nothing is sent yet.

    Args:
        url: ``s3://``, ``gs://`` or ``az://``.
        access: how a bucket of S3 is reached.
        key: of the settings, for messages.

    Raises:
        SettingsError: the address is of no kind that is known.
    """
    client: ClientConfig = {"allow_http": access.allow_http}
    try:
        if url.startswith("s3://"):
            return S3Store.from_url(url, config=_s3_config(access), client_options=client)
        return from_url(url, client_options=client)
    except (BaseError, ValueError) as error:
        raise SettingsError(
            f"{key} {url!r} cannot be opened: {first_line(error)}",
            hint="give a folder, or an address: s3://bucket/prefix, or the same with gs:// or az://",
        ) from error


def _s3_config(access: BucketAccess) -> S3Config:
    config: S3Config = {}
    if access.region:
        config["region"] = access.region
    if access.endpoint:
        config["endpoint"] = access.endpoint
    if access.access_key:
        config["access_key_id"] = resolve_secret(access.access_key)
    if access.secret_key:
        config["secret_access_key"] = resolve_secret(access.secret_key)
    return config


def lacks_bucket(error: BaseException) -> bool:
    """Whether not the object is missing but the bucket."""
    return bool(_NO_BUCKET.search(str(error)))


def bucket_error(
    url: str, path: str, error: Exception, *, key: str
) -> StopRunError | TransientError:
    """What an error of a bucket means for a run.

    Args:
        url: of the bucket.
        path: below it.
        error: of the client.
        key: of the settings, for messages.
    """
    message = f"{url}/{path}: {first_line(error)}"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StopRunError(message, code="credentials", hint="check the bucket's credentials")
    if lacks_bucket(error):
        return StopRunError(
            f"{url}: there is no such bucket", code="no-bucket", hint=f"make it, or set {key}"
        )
    return TransientError(message, code="object-store")


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its type."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
