"""A prefix of a bucket as the place of a source: keys as they are, no markers, read ahead."""

from __future__ import annotations

import bisect
import io
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from errno import EACCES
from typing import TYPE_CHECKING, Any, Self, TypeVar

import obstore
from obstore.exceptions import BaseError, InvalidPathError, PermissionDeniedError, PreconditionError
from obstore.store import ObjectStore

from embedmill.errors import PermanentError, SourceError, StopRunError, TransientError
from embedmill.object_store import bucket_error, first_line, lacks_bucket, open_object_store
from embedmill.sources.bucket_keys import (
    Key,
    is_addressable,
    keys_below,
    names_in_s3,
    plain_path,
    why_unaddressable,
)
from embedmill.sources.entity_tags import RepeatedTags, names_content, tag_of
from embedmill.sources.listing import MARK, LinkPolicy, ListedFile, Listing, unread_ending
from embedmill.sources.path_patterns import PathPatterns
from embedmill.sources.place import UNADDRESSABLE, Opened, glob_at
from embedmill.workspace_settings import BucketAccess

if TYPE_CHECKING:
    # This name exists for type checkers only.
    from obstore import ObjectMeta

T = TypeVar("T")
log = logging.getLogger(__name__)
# A bucket answers after tens of milliseconds: small documents are asked for side by side.
_AT_A_TIME = 8
# Of an object that comes in one reply; of a larger one as much at a time.
_REPLY_BYTES = 8 * 2**20
_KEY = "source.path"
_REPEATED = (
    "objects of different sizes have one entity tag, so that it does not tell whether an object "
    "has changed: all of them are read"
)


class Bucket:
    """See :class:`~embedmill.sources.place.Place`.

    Keys are taken as they are: ``a b.md`` and ``a%20b.md`` are two documents. An empty object whose
    key ends with a slash, or begins other keys as a folder does, marks a folder for tools that want
    one; it is no document.
    """

    def __init__(
        self, url: str, prefix: str, named: str, access: BucketAccess, own: str = ""
    ) -> None:
        """Open nothing yet.

        Args:
            url: of the bucket.
            prefix: below it, without slashes around it.
            named: how the settings put both.
            access: how it is reached.
            own: address that begins those of objects which are left out; "": there are none.
        """
        self._url = url
        self._prefix = prefix
        self._named = named
        self._access = access
        self._own = own
        self._opened: ObjectStore | None = None

    @classmethod
    def of(cls, path: str, access: BucketAccess, own: str = "") -> Self:
        """The place that the settings name by an URL."""
        scheme, _, rest = path.partition("://")
        bucket, _, prefix = rest.partition("/")
        return cls(f"{scheme}://{bucket}", prefix.strip("/"), path, access, own)

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        # Without the client, which holds keys.
        return type(self), (self._url, self._prefix, self._named, self._access, self._own)

    @property
    def _store(self) -> ObjectStore:
        if self._opened is None:
            self._opened = open_object_store(self._url, self._access, key=_KEY)
        return self._opened

    def single(self) -> ListedFile | None:
        """See :meth:`~embedmill.sources.place.Place.single`."""
        meta = self._look_at(self._prefix) if self._prefix else None
        # An empty one may mark the folder that is meant.
        if meta is None or not meta["size"] or self._named.endswith("/"):
            return None
        folder, _, name = self._prefix.rpartition("/")
        return ListedFile(self._root(folder), name, meta["size"], tag_of(self._identity, meta))

    def listing(self, patterns: PathPatterns, *, links: LinkPolicy = "skip") -> Listing:  # noqa: ARG002
        """See :meth:`~embedmill.sources.place.Place.listing`; there are no links in a bucket."""
        objects = self._objects()
        if not objects:
            raise SourceError(
                f"the source {self._named!r} cannot be read: there is no such object, and none "
                "below it",
                code="no-such-path",
                hint=f"set `{_KEY}` to an object, or to a prefix of some",
            )
        paths = sorted(objects)
        taken, unread = [], Counter[str | None]()
        for path in paths:
            plain = plain_path(path)
            if not patterns.takes(plain):
                unread[None if patterns.excludes(plain) else unread_ending(plain)] += 1
            elif objects[path].size or not self._is_marker(path, paths):
                taken.append(objects[path])
        return Listing(tuple(taken), 0, {ending: n for ending, n in unread.items() if ending})

    def divided(self) -> tuple[Self, str]:
        """See :meth:`~embedmill.sources.place.Place.divided`."""
        parts = self._prefix.split("/")
        at = glob_at(parts)
        if at is None or self._look_at(self._prefix) is not None:
            return self, "**"
        folder = "/".join(parts[:at])
        place = type(self)(self._url, folder, self._named, self._access, self._own)
        return place, "/".join(parts[at:])

    def open(self, path: str) -> Opened:
        """See :meth:`~embedmill.sources.place.Place.open`."""
        key = self._key_of(path)
        if not is_addressable(key):
            raise PermanentError(why_unaddressable(key), code=UNADDRESSABLE)
        try:
            reply = obstore.get(self._store, key)
            tag = tag_of(self._identity, reply.meta)
            if reply.meta["size"] <= _REPLY_BYTES:
                return Opened(io.BytesIO(reply.bytes()), tag)
        except (BaseError, OSError) as error:
            raise self._not_read(key, error) from error
        ranges = _Ranges(reply.meta["size"], lambda start, end: self._part(key, reply, start, end))
        return Opened(io.BufferedReader(ranges, _REPLY_BYTES), tag)

    def each(self, work: Callable[[str], T], paths: Iterable[str]) -> Iterator[T]:
        """See :meth:`~embedmill.sources.place.Place.each`; a few at a time, in threads."""
        with ThreadPoolExecutor(_AT_A_TIME, thread_name_prefix="bucket") as threads:
            ahead: deque[Future[T]] = deque()
            try:
                for path in paths:
                    ahead.append(threads.submit(work, path))
                    if len(ahead) >= _AT_A_TIME:
                        yield ahead.popleft().result()
                while ahead:
                    yield ahead.popleft().result()
            finally:
                for future in ahead:
                    future.cancel()

    def gone(self, path: str) -> SourceError:
        """See :meth:`~embedmill.sources.place.Place.gone`."""
        return SourceError(
            f"{self._url}/{self._key_of(path)} was listed but is gone",
            code="gone",
            hint="run again when nobody changes the bucket",
        )

    def _root(self, folder: str) -> str:
        return f"{self._url}/{folder}" if folder else self._url

    def _key_of(self, path: str) -> str:
        return path.replace(MARK, "/", 1).removeprefix(f"{self._url}/")

    @property
    def _identity(self) -> str:
        """What the entity tags of a key belong to."""
        return f"{self._access.endpoint or ''} {self._url}"

    def _objects(self) -> dict[str, ListedFile]:
        """Objects by their path below the prefix."""
        root, start = self._root(self._prefix), len(self._prefix) + 1 if self._prefix else 0
        own = self._own.partition(f"{self._url}/")[2]
        identity = self._identity
        shown: dict[str, ListedFile] = {}
        named: dict[str, ListedFile] = {}
        repeated = RepeatedTags()
        try:
            for key, size, meta in keys_below(self._store, self._prefix, self._names()):
                if own and key.startswith(own):
                    continue
                tag = None
                if meta is not None:
                    repeated.look_at(meta)
                    tag = tag_of(identity, meta)
                objects = named if meta is None else shown
                self._add(objects, ListedFile(root, key[start:], size, tag))
        except (BaseError, OSError, ValueError) as error:
            raise self._not_listed(error) from error
        if repeated.found:
            log.warning("%s: %s", self._named, _REPEATED)
            shown = {path: replace(file, tag=None) for path, file in shown.items()}
        objects = {**named, **shown}
        if (of_prefix := objects.pop("", None)) and of_prefix.size:
            log.warning("%s/ has content and no name below the prefix: left out", root)
        return objects

    def _add(self, objects: dict[str, ListedFile], file: ListedFile) -> None:
        """Add an object to those that were listed before.

        The client shows ``docs`` and ``docs/`` under one name. Of the two an empty one is a marker;
        what has content under the name with the slash cannot be asked for, and is a row that says
        so.
        """
        before = objects.setdefault(file.relative, file)
        if before is file or not (file.size or before.size):
            return
        one = file if file.size else before
        slashed = self._slashed(self._key_of(file.path))
        if not slashed:
            # Or it has just been deleted.
            objects[file.relative] = one
            return
        if not (before.size and file.size):
            del objects[file.relative]
        path = slashed.removeprefix(f"{self._prefix}/")
        objects[path] = replace(one, relative=path, tag=None)

    def _names(self) -> Callable[[], Iterator[Key]] | None:
        """Lists by another client, where there is one."""
        scheme, _, bucket = self._url.partition("://")
        if scheme != "s3":
            return None
        return lambda: names_in_s3(bucket, self._prefix, self._access)

    def _slashed(self, key: str) -> str | None:
        """The key with the slash at its end or beginning that the client leaves out, if any."""
        # Only what begins with the key and a slash; only what comes behind all that sorts before
        # a slash, which is what begins with one.
        if self._is_among_first(key, prefix=key):
            return f"{key}/"
        return f"/{key}" if self._is_among_first(key, offset=".~") else None

    def _is_among_first(self, key: str, **where: str) -> bool:
        try:
            batches = obstore.list(self._store, chunk_size=1_000, **where)
            first = next(iter(batches), ())
            return any(meta["path"] == key and meta["size"] > 0 for meta in first)
        except InvalidPathError:
            # Below the key there is one of several slashes.
            return "prefix" in where

    def _is_marker(self, path: str, paths: list[str]) -> bool:
        """Whether an empty object marks a folder.

        Args:
            path: of the object.
            paths: of all, sorted.
        """
        below = f"{path}/"
        at = bisect.bisect_left(paths, below)
        if at < len(paths) and paths[at].startswith(below):
            return True
        key = f"{self._prefix}/{path}" if self._prefix else path
        # The client leaves the slash at the end of a key out: without it there is no such object.
        return is_addressable(key) and self._look_at(key) is None

    def _look_at(self, key: str) -> ObjectMeta | None:
        try:
            return obstore.head(self._store, key)
        except FileNotFoundError as error:
            if lacks_bucket(error):
                raise self._not_listed(error) from error
            return None
        except (BaseError, OSError, ValueError) as error:
            raise self._not_listed(error) from error

    def _not_listed(self, error: Exception) -> SourceError | TransientError:
        if isinstance(error, InvalidPathError | ValueError):
            return SourceError(
                f"{self._named}: {first_line(error)}",
                code=UNADDRESSABLE,
                hint=f"rename that object, or set `{_KEY}` to a prefix beside it",
            )
        meaning = bucket_error(self._url, self._prefix, error, key=_KEY)
        if isinstance(meaning, StopRunError):
            return SourceError(str(meaning), code=meaning.code, hint=meaning.hint)
        return meaning

    def _not_read(self, key: str, error: Exception) -> Exception:
        if isinstance(error, FileNotFoundError) and not lacks_bucket(error):
            slashed = self._slashed(key)
            if slashed:
                return PermanentError(why_unaddressable(slashed), code=UNADDRESSABLE)
            return error
        if isinstance(error, PermissionDeniedError):
            return PermissionError(EACCES, first_line(error))
        return bucket_error(self._url, key, error, key=_KEY)

    def _part(self, key: str, reply: Any, start: int, end: int) -> bytes:  # noqa: ANN401
        """A part of the object that the first reply was about, not of what was put there since."""
        options: Any = {"range": (start, end)}
        if is_strong := names_content(reply.meta["e_tag"]):
            options["if_match"] = reply.meta["e_tag"]
        try:
            part = obstore.get(self._store, key, options=options)
            # Nothing matches a tag that is weak, or none.
            if is_strong or part.meta == reply.meta:
                return bytes(part.bytes())
        except PreconditionError:
            log.debug("%s has another entity tag by now", key)
        except (BaseError, OSError) as error:
            raise self._not_read(key, error) from error
        raise TransientError(
            f"{self._url}/{key} was changed while it was read", code="object-store"
        )


class _Ranges(io.RawIOBase):
    """An object of known size as a file, read part by part."""

    def __init__(self, size: int, part: Callable[[int, int], bytes]) -> None:
        super().__init__()
        self._size = size
        self._part = part
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        starts = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}
        self._at = max(0, starts[whence] + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - a writable buffer
        end = min(self._at + len(buffer), self._size)
        if end <= self._at:
            return 0
        read = end - self._at
        buffer[:read] = self._part(self._at, end)
        self._at = end
        return read
