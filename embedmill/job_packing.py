"""Packing: open rows of any segments into files of requests, under every limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from embedmill.batch_provider import BatchLimits, RequestFile
from embedmill.errors import PermanentError
from embedmill.job_requests import Request, Requests, custom_id
from embedmill.job_rows import SegmentRows
from embedmill.request_file import LineTemplate, RequestWriter, require_clean
from embedmill.segment import ChunkLayer, SegmentKey


@dataclass(frozen=True, slots=True)
class Packed:
    """A file and what is in it.

    Attributes:
        file: on the local disk, checked; its job key is not set yet.
        requests: rows of each request, in the order of the lines.
        canaries: lines before these, with known answers.
    """

    file: RequestFile
    requests: Requests
    canaries: int


def canary_id(position: int) -> str:
    """Custom id of a request whose answer is known."""
    return f"canary.{position}"


def _canary_tokens(text: str) -> int:
    """Of a plain English sentence, rather too many than too few."""
    return -(-len(text) // 3)


@dataclass(slots=True)
class _Filling:
    """What one file holds so far.

    Attributes:
        limit: tokens that may wait at the provider over all jobs; None: not known.
        room: of these, what is left now.
        tokens: of the file.
        requests: without those whose answers are known.
    """

    limit: int | None
    room: int | None
    tokens: int = 0
    requests: list[Request] = field(default_factory=list)

    def take(
        self,
        writer: RequestWriter,
        rows: SegmentRows,
        request: Request,
        texts: Sequence[str],
        counts: Sequence[int],
    ) -> bool:
        """Add a request, text by text where no file takes the whole; False when there is no room.

        A text that no file takes even alone dies.
        """
        try:
            return self._add(writer, request, texts, counts)
        except PermanentError as error:
            if len(request) == 1:
                rows.bury(request[0][1], error.code, str(error))
                return True
        for place, text, count in zip(request, texts, counts, strict=True):
            rows.alone[place[1]] = True
            if not self.take(writer, rows, (place,), [text], [count]):
                return False
        return True

    def _add(
        self,
        writer: RequestWriter,
        request: Request,
        texts: Sequence[str],
        counts: Sequence[int],
    ) -> bool:
        wanted = self.tokens + sum(counts)
        if self.limit is not None and not self.requests and wanted > self.limit:
            raise PermanentError(
                f"{wanted} tokens, {self.limit} may wait in jobs at a time", code="too-large"
            )
        if self.room is not None and wanted > self.room:
            return False
        if not writer.add(custom_id(request), texts, counts):
            if not self.requests:
                raise PermanentError("the text does not fit into any file", code="too-large")
            return False
        self.tokens = wanted
        self.requests.append(request)
        return True


class Packer:
    """Writes request files for one embedding recipe into a scratch folder."""

    def __init__(
        self,
        chunks: ChunkLayer,
        template: LineTemplate,
        limits: BatchLimits,
        scratch: Path,
        *,
        inputs_per_request: int,
        canaries: Sequence[str],
        inputs_per_file: int | None = None,
    ) -> None:
        """Prepare.

        Args:
            chunks: hold the texts.
            template: of the provider's requests.
            limits: of the provider.
            scratch: local folder for files.
            inputs_per_request: texts of one request; 1 keeps a bad row alone.
            canaries: texts with known vectors, sent at the beginning of every file.
            inputs_per_file: texts of one file, where it is to hold fewer than it might.
        """
        self._chunks = chunks
        self._template = template
        self._limits = limits
        self._scratch = scratch
        self._inputs = min(inputs_per_request, limits.inputs_per_request or inputs_per_request)
        self._canaries = canaries
        self._stated = self._inputs_per_file = inputs_per_file
        self._files = 0
        self._last: tuple[SegmentKey, pa.Table] | None = None

    @property
    def inputs_per_file(self) -> int | None:
        """Texts of one file at most, those with known vectors not counted; None: no limit."""
        stated = self._limits.inputs_per_file or self._limits.requests_per_file
        most = (self._inputs_per_file, stated)
        return min((each for each in most if each is not None), default=None)

    def limit(self, inputs: int | None) -> None:
        """Put no more texts into a file from now on; None: as many as the settings say."""
        stated = self._stated
        self._inputs_per_file = stated if inputs is None else min(inputs, stated or inputs)

    def pack(
        self, segments: Sequence[SegmentRows], most_tokens: int | None, *, shortest: bool = False
    ) -> Packed | None:
        """Fill one file with open rows, in the order given; rows no file can take die.

        Args:
            segments: with open rows.
            most_tokens: that may still wait at the provider; None: no limit is known.
            shortest: put the shortest text alone into it.

        Returns:
            None when there is no open row, or no room for the first of them.
        """
        filling = _Filling(self._limits.enqueued_tokens, most_tokens)
        limits = self._limits
        if self._inputs_per_file is not None:
            most = self._inputs_per_file + len(self._canaries)
            limits = replace(limits, inputs_per_file=min(most, limits.inputs_per_file or most))
        with self._writer(self._canaries, limits) as writer:
            filling.tokens = sum(map(_canary_tokens, self._canaries))
            for rows, request, texts, counts in self._requests(
                _shortest(segments) if shortest else ((it, it.open_rows()) for it in segments)
            ):
                if not filling.take(writer, rows, request, texts, counts):
                    break
            if not filling.requests:
                return None
            return self._finished(writer, Requests.of(filling.requests), len(self._canaries))

    def again(self, requests: Requests, canaries: int) -> Packed:
        """Write a file that was written before; equal rows give equal bytes."""
        with self._writer(self._canaries[:canaries], self._limits) as writer:
            for request in requests:
                writer.add(custom_id(request), *self._texts(request))
            return self._finished(writer, requests, canaries)

    def _writer(self, canaries: Sequence[str], limits: BatchLimits) -> RequestWriter:
        """A new file that begins with the requests whose answers are known."""
        self._files += 1
        path = self._scratch / f"requests-{self._files:06d}.jsonl"
        # Tokens that may wait are counted over all jobs, by the caller.
        limits = replace(limits, enqueued_tokens=None)
        writer = RequestWriter(path, job_key="", template=self._template, limits=limits)
        for position, text in enumerate(canaries):
            writer.add(canary_id(position), [text], [_canary_tokens(text)])
        return writer

    def _finished(self, writer: RequestWriter, requests: Requests, canaries: int) -> Packed:
        file = writer.finish()
        require_clean(file.path, self._template, self._limits)
        return Packed(file, requests, canaries)

    def _requests(
        self, wanted: Iterable[tuple[SegmentRows, Sequence[int]]]
    ) -> Iterator[tuple[SegmentRows, Request, list[str], list[int]]]:
        for rows, opened in wanted:
            if not opened:
                continue
            column = self._chunks.chunks(rows.key)[0].column("text")
            texts = column.take(pa.array(opened, pa.int64())).to_pylist()
            start = 0
            for group in self._groups(rows, opened):
                request = tuple((rows.key, row) for row in group)
                counts = [int(rows.tokens[row]) for row in group]
                yield rows, request, texts[start : start + len(group)], counts
                start += len(group)

    def _groups(self, rows: SegmentRows, opened: Sequence[int]) -> Iterator[list[int]]:
        """Rows of one request each, in order: not too many, nor their tokens; lonely ones alone."""
        group: list[int] = []
        tokens = 0
        most = self._limits.tokens_per_request
        # A request that is larger than a file would be sent text by text.
        inputs = min(self._inputs, self._inputs_per_file or self._inputs)
        for row in opened:
            count = int(rows.tokens[row])
            full = len(group) >= inputs or (most is not None and tokens + count > most)
            if group and (full or rows.alone[row]):
                yield group
                group, tokens = [], 0
            if rows.alone[row]:
                yield [row]
                continue
            group.append(row)
            tokens += count
        if group:
            yield group

    def _texts(self, request: Request) -> tuple[list[str], list[int]]:
        table = self._table(request[0][0])
        at = pa.array([row for _, row in request], pa.int64())
        texts = table.column("text").take(at).to_pylist()
        return texts, table.column("token_count").take(at).to_pylist()

    def _table(self, key: SegmentKey) -> pa.Table:
        # Requests of a segment stand together: the last one read is the one wanted next.
        if self._last is None or self._last[0] != key:
            self._last = (key, self._chunks.chunks(key)[0])
        return self._last[1]


def _shortest(segments: Iterable[SegmentRows]) -> list[tuple[SegmentRows, list[int]]]:
    """The open row of fewest tokens."""
    each = ((int(rows.tokens[row]), rows, row) for rows in segments for row in rows.open_rows())
    _, rows, row = min(each, key=lambda it: it[0])
    return [(rows, [row])]
