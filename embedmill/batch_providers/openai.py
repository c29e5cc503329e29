"""Embedding jobs at OpenAI, and at whoever has its files and batches, through the official SDK."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar, cast

import httpx2
import msgspec
import openai

from embedmill.batch_provider import (
    QUEUE_FULL,
    BatchLimits,
    JobHandle,
    JobState,
    ListedJob,
    RequestFile,
    RowOutcome,
)
from embedmill.batch_providers.dialect import OPENAI, Dialect, Server
from embedmill.batch_providers.openai_results import lines_of, outcomes_of
from embedmill.batch_providers.openai_wire import (
    FINGERPRINT,
    JOB_KEY,
    WireBatch,
    WireBatchPage,
    WireFile,
    WireFilePage,
    handle_of,
    listed_of,
    moment_of,
    state_of,
)
from embedmill.batch_providers.resumable_download import Opened, download
from embedmill.errors import (
    EmbedmillError,
    OutcomeUnknownError,
    RateLimitedError,
    RefusedError,
    TransientError,
)
from embedmill.openai_replies import NOT_THERE, ErrorReply, job_error_of
from embedmill.recipe import EmbeddingRecipe
from embedmill.redaction import redacted
from embedmill.settings_file import resolve_secret

_T = TypeVar("_T")

# Of a call that did not reach the server; certain only before a connection stands.
_NOT_SENT = "not-sent"
_UNSENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout)
# Clocks of two machines may differ by so much when a job is looked for.
_CLOCK_SKEW = timedelta(minutes=5)
# A file was seen to be unknown for a while after its upload.
_VISIBLE_TRIES, _VISIBLE_PAUSE_S = 5, 2.0
_CHUNK = 1 << 20
# Seconds to reach the server; it then has as long as the settings say.
_CONNECT_S = 5


class _Raw(Protocol):
    """A reply that the SDK has not interpreted."""

    @property
    def content(self) -> bytes: ...


class OpenAIBatchProvider:
    """See :class:`~embedmill.batch_provider.BatchEmbeddingProvider` and the dialect.

    The SDK repeats reads that fail, twice; uploads and creations never: a repeated creation is a
    second job and a second bill.
    """

    def __init__(
        self,
        server: Server,
        recipe: EmbeddingRecipe,
        dialect: Dialect = OPENAI,
        *,
        limits: BatchLimits,
        read_retries: int = 2,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.kind = dialect.provider
        self.limits = limits
        self._recipe = recipe
        self._dialect = dialect
        self._sleep = sleep
        self._now = now
        self._client = openai.OpenAI(
            api_key=resolve_secret(server.api_key),
            base_url=server.base_url,
            timeout=httpx2.Timeout(server.timeout_s, connect=_CONNECT_S),
            max_retries=0,
        )
        self._upload_timeout = httpx2.Timeout(
            # The server works on the file before it replies.
            5 * server.timeout_s,
            connect=_CONNECT_S,
            write=server.timeout_s,
        )
        self._reads = self._client.with_options(max_retries=read_retries)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def submit(
        self,
        requests: RequestFile,
        *,
        job_key: str,
        fingerprint: str,
        uploaded_since: datetime | None = None,
    ) -> JobHandle:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.submit`."""
        name = f"{job_key}-{fingerprint}.jsonl"
        known = uploaded_since and self._uploaded(name, requests.bytes, uploaded_since)
        file_id = known or self._upload(requests, name)
        self._await_file(file_id)
        marks = {JOB_KEY: job_key, FINGERPRINT: self._dialect.marked(fingerprint)}
        return self._create(file_id, marks)

    def find(self, *, job_key: str, fingerprint: str, since: datetime) -> JobHandle | None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.find`."""
        found = [
            job
            for job in self.list_jobs(since - _CLOCK_SKEW)
            if (job.job_key, job.fingerprint) == (job_key, fingerprint)
        ]
        # Oldest first; of those that failed none costs anything.
        found.reverse()
        found.sort(key=lambda job: job.state.status == "failed")
        return found[0].handle if found else None

    def state(self, job: JobHandle) -> JobState:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.state`."""
        batch = self._read(
            f"asking for job {job.job_id}",
            lambda: self._reads.batches.with_raw_response.retrieve(job.job_id),
            WireBatch,
        )
        return state_of(batch)

    def outcomes(self, job: JobHandle) -> Iterator[RowOutcome]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.outcomes`."""
        state = self.state(job)
        if not state.terminal:
            raise RefusedError(
                f"job {job.job_id} is {state.raw_status}, it has no results yet",
                code="not-finished",
            )
        files = [name for name in (state.output_file_id, state.error_file_id) if name]
        return chain.from_iterable(
            outcomes_of(lines, self._recipe, self._dialect.form)
            for file_id in files
            for lines in lines_of(self._content(file_id))
        )

    def cancel(self, job: JobHandle) -> None:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.cancel`."""
        doing = f"cancelling job {job.job_id}"
        try:
            self._call(doing, lambda: self._client.batches.with_raw_response.cancel(job.job_id))
        except (RefusedError, TransientError):
            # Refused with 400 or 409 when it is finished: then there is nothing to do.
            if not self.state(job).terminal:
                raise

    def list_jobs(self, since: datetime) -> Iterator[ListedJob]:
        """See :meth:`~embedmill.batch_provider.BatchEmbeddingProvider.list_jobs`."""
        after: str | openai.Omit = openai.omit
        while True:
            page = self._read(
                "listing jobs",
                partial(self._reads.batches.with_raw_response.list, limit=100, after=after),
                WireBatchPage,
            )
            for batch in page.data:
                if moment_of(batch.created_at) < since:
                    return
                listed = listed_of(batch, self._dialect.provider)
                yield replace(listed, fingerprint=self._dialect.unmarked(listed.fingerprint))
            if not page.has_more or not page.data:
                return
            after = page.data[-1].id

    def _uploaded(self, name: str, size: int, since: datetime) -> str | None:
        """Id of the newest upload of this name and size, if it is not older."""
        after: str | openai.Omit = openai.omit
        while True:
            page = self._read(
                "listing files",
                partial(
                    self._reads.files.with_raw_response.list,
                    purpose="batch",
                    order="desc",
                    limit=1000,
                    after=after,
                ),
                WireFilePage,
            )
            for file in page.data:
                if moment_of(file.created_at) < since - _CLOCK_SKEW:
                    return None
                if (file.filename, file.bytes) == (name, size):
                    return file.id
            if not page.has_more or not page.data:
                return None
            after = page.data[-1].id

    def _upload(self, requests: RequestFile, name: str) -> str:
        # A handle is streamed; a Path would be read into memory whole.
        with requests.path.open("rb") as handle:
            try:
                file = self._read(
                    f"uploading {name}",
                    partial(
                        self._client.files.with_raw_response.create,
                        file=(name, handle, "application/jsonl"),
                        purpose="batch",
                        timeout=self._upload_timeout,
                    ),
                    WireFile,
                )
            except RateLimitedError:
                raise
            except TransientError as error:
                raise TransientError(str(error), code="upload-lost") from error
        if file.bytes not in {None, 0, requests.bytes}:
            raise TransientError(
                f"{file.bytes} bytes of {name} arrived, {requests.bytes} were sent",
                code="upload-lost",
            )
        return file.id

    def _await_file(self, file_id: str) -> None:
        # A job on an unknown file is accepted all the same, and fails minutes later.
        for tries_left in reversed(range(_VISIBLE_TRIES)):
            try:
                self._file(file_id)
            except RefusedError as error:
                if not tries_left:
                    raise TransientError(str(error), code="file-not-visible") from error
                self._sleep(_VISIBLE_PAUSE_S)
            else:
                return

    def _create(self, file_id: str, metadata: dict[str, str]) -> JobHandle:
        try:
            batch = self._read(
                "creating a job",
                lambda: self._client.batches.with_raw_response.create(
                    input_file_id=file_id,
                    endpoint="/v1/embeddings",
                    # The SDK knows no other window than OpenAI's.
                    completion_window=cast(Any, self._dialect.window),
                    metadata=metadata,
                    extra_body=dict(self._dialect.creation) or None,
                ),
                WireBatch,
            )
        except RateLimitedError as error:
            if self._dialect.refuses_when_full:
                raise TransientError(str(error), code=QUEUE_FULL) from error
            raise
        except RefusedError as error:
            if error.code != "not-found":
                raise
            # Seen after a good upload: the next try sends the file again.
            self._delete(file_id)
            raise TransientError(str(error), code="file-not-visible") from error
        except TransientError as error:
            if error.code in {QUEUE_FULL, _NOT_SENT}:
                raise
            raise OutcomeUnknownError(
                f"{error}; the job may exist", code="create-unknown"
            ) from error
        return handle_of(batch, self._dialect.provider)

    def _delete(self, file_id: str) -> None:
        with suppress(RefusedError, TransientError):
            self._call(
                f"deleting file {file_id}",
                lambda: self._client.files.with_raw_response.delete(file_id),
            )

    def _content(self, file_id: str) -> Iterator[bytes]:
        try:
            size = self._file(file_id).bytes or None
            open_at = partial(self._open, file_id)
            yield from download(open_at, size=size, sleep=self._sleep)
        except RefusedError as error:
            if error.code not in NOT_THERE:
                raise
            raise RefusedError(
                f"{error}; the provider keeps results for 30 days", code="results-gone"
            ) from error

    def _file(self, file_id: str) -> WireFile:
        return self._read(
            f"looking for file {file_id}",
            lambda: self._reads.files.with_raw_response.retrieve(file_id),
            WireFile,
        )

    @contextmanager
    def _open(self, file_id: str, start: int) -> Iterator[Opened]:
        # Without compression the bytes can be counted, and asked for by number.
        headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={start}-"} if start else {})
        streamed = self._client.files.with_streaming_response.content(
            file_id, extra_headers=headers
        )
        reply = self._call(f"reading file {file_id}", streamed.__enter__)
        try:
            begins, ends = _extent(reply.status_code, reply.headers)
            yield Opened(begins, ends, _chunks(reply.iter_bytes(_CHUNK)))
        finally:
            streamed.__exit__(None, None, None)

    def _read(self, doing: str, call: Callable[[], _Raw], kind: type[_T]) -> _T:
        """Call, and read the reply as what it should be."""
        content = self._call(doing, call).content
        try:
            return msgspec.json.decode(content, type=kind)
        except msgspec.DecodeError as error:
            # A page of a proxy, with status 200; the server may have done what was asked.
            raise TransientError(
                f"{doing}: the reply cannot be read: {error}", code="unreadable-reply"
            ) from error

    def _call(self, doing: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except openai.APIStatusError as error:
            raise self._meaning(error, doing) from error
        except openai.APIConnectionError as error:
            cause = error.__cause__ or error
            code = _NOT_SENT if isinstance(cause, _UNSENT) else "connection"
            message = redacted(f"{doing}: {type(cause).__name__}: {cause}")
            raise TransientError(message, code=code) from error

    def _meaning(self, error: openai.APIStatusError, doing: str) -> EmbedmillError:
        headers = {name.lower(): value for name, value in error.response.headers.items()}
        reply = ErrorReply(error.status_code, headers, error.response.content)
        return job_error_of(reply, doing=doing, now=self._now())


def _chunks(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except httpx2.HTTPError as error:
        # Of a body that is streamed the SDK neither retries nor wraps anything.
        raise TransientError(f"{type(error).__name__}: {error}", code="connection") from error


def _extent(status: int, headers: httpx2.Headers) -> tuple[int, int | None]:
    """Where a reply begins in its file, and the size of the whole file."""
    if status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("content-range", ""))
        if found is None:
            raise TransientError("part of a file, without saying which", code="unreadable-reply")
        return int(found[1]), None if found[2] == "*" else int(found[2])
    length = headers.get("content-length")
    plain = headers.get("content-encoding", "identity") == "identity"
    return 0, int(length) if length and plain else None
