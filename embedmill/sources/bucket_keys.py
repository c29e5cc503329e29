"""The keys of a bucket below a prefix, those that its client cannot address among them.

The client takes a key apart at its slashes and refuses a listing in which a part is empty, ``.`` or
``..``, or has a control character: one such key would hide all others. Arrow lists them, without
entity tags, and reads no better; it is asked for the names alone, and only where there is such a
key. Of what the client shows, a slash at the beginning or the end of a key is missing.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

import obstore
import pyarrow.fs as pafs
from obstore.exceptions import InvalidPathError
from obstore.store import ObjectStore

from embedmill.settings_file import resolve_secret
from embedmill.workspace_settings import BucketAccess

if TYPE_CHECKING:
    # This name exists for type checkers only.
    from obstore import ObjectMeta

log = logging.getLogger(__name__)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NO_NAMES = {"", ".", ".."}


class Key(NamedTuple):
    """An object of a listing.

    Attributes:
        key: whole, but for what the client does not show.
        size: in bytes.
        meta: all that the listing says; None where only Arrow lists it.
    """

    key: str
    size: int
    meta: ObjectMeta | None = None


def is_addressable(key: str) -> bool:
    """Whether the client can ask for an object under this key."""
    return _NO_NAMES.isdisjoint(key.split("/")) and not _CONTROL.search(key)


def plain_path(path: str) -> str:
    """A path without what makes it unaddressable, for patterns, which know folders and names."""
    if "//" not in f"/{path}/" and "/." not in f"/{path}":
        return path
    return "/".join(part for part in path.split("/") if part not in _NO_NAMES)


def why_unaddressable(key: str) -> str:
    """What is the matter with a key, and what to do."""
    parts = key.split("/")
    if parts[0] == "" or parts[-1] == "":
        found = "begins" if parts[0] == "" else "ends"
        problem = f"its key {found} with a slash"
    elif "" in parts:
        problem = "its key has two slashes in a row"
    elif not _NO_NAMES.isdisjoint(parts):
        problem = f"a part of its key is {next(p for p in parts if p in _NO_NAMES)!r}"
    else:
        problem = "its key has a control character"
    return (
        f"{problem} ({key!r}), by which it cannot be asked for: rename the object, or leave it out "
        "of what `source` reads"
    )


def keys_below(
    store: ObjectStore, prefix: str, all_names: Callable[[], Iterator[Key]] | None
) -> Iterator[Key]:
    """Every object below a prefix, each at least once, in no order.

    Args:
        store: of the bucket.
        prefix: without slashes around it.
        all_names: lists the bucket again, by another client; None where there is none.

    Raises:
        InvalidPathError: one key is not addressable, and there is no other client.
    """
    start: str | None = ""
    names: Sequence[Key] = ()
    while start is not None:
        last = start
        try:
            for one in _shown(store, prefix, start):
                # What is shown without its slash stands out of order.
                last = max(last, one.key)
                yield one
        except InvalidPathError as error:
            if not names:
                names = _names(all_names, error)
                yield from names
            # The reply behind the last one has such a key. What it says of others is lost, so that
            # these, a thousand at most, are read by every run.
            start = _behind_the_next_refused(names, last)
        else:
            return


def _shown(store: ObjectStore, prefix: str, start: str) -> Iterator[Key]:
    for batch in obstore.list(store, prefix=prefix or None, offset=start or None):
        for meta in batch:
            yield Key(meta["path"], meta["size"], meta)


def _names(
    all_names: Callable[[], Iterator[Key]] | None, refusal: InvalidPathError
) -> Sequence[Key]:
    if all_names is None:
        raise refusal
    try:
        return sorted(all_names(), key=attrgetter("key"))
    except OSError as error:
        log.warning("nor can the keys be listed by another client: %s", error)
        raise refusal from error


def _behind_the_next_refused(names: Sequence[Key], last: str) -> str | None:
    """The first key that the client takes behind the first that it does not, behind ``last``."""
    behind = iter(names[bisect_right(names, last, key=attrgetter("key")) :])
    next((name for name in behind if _is_refused(name.key)), None)
    return next((name.key for name in behind if not _is_refused(name.key)), None)


def _is_refused(key: str) -> bool:
    # One slash at either end the client leaves out.
    return not is_addressable(key.removeprefix("/").removesuffix("/"))


def names_in_s3(bucket: str, prefix: str, access: BucketAccess) -> Iterator[Key]:
    """All objects below a prefix of a bucket of S3, by Arrow.

    Raises:
        OSError: it cannot be listed.
    """
    secrets = {
        name: resolve_secret(value)
        for name, value in (("access_key", access.access_key), ("secret_key", access.secret_key))
        if value
    }
    places = {"region": access.region, "endpoint_override": access.endpoint}
    s3 = pafs.S3FileSystem(**secrets, **{k: v for k, v in places.items() if v})
    below = f"{bucket}/{prefix}".rstrip("/")
    for info in s3.get_file_info(pafs.FileSelector(below, recursive=True)):
        if info.type == pafs.FileType.File:
            yield Key(info.path[len(bucket) + 1 :], info.size)
