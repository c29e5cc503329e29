"""Datasets of Cohere: what jobs read, and what they leave behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from embedmill.batch_provider import FILE_TOO_LARGE, RequestFile, RowOutcome
from embedmill.batch_providers.cohere_http import CohereHttp
from embedmill.batch_providers.cohere_wire import (
    Dataset,
    DatasetReply,
    Datasets,
    Part,
    moment_of,
)
from embedmill.errors import RefusedError, TransientError
from embedmill.openai_replies import NOT_THERE, tells_of_size

# Clocks of two machines may differ by so much when a job or a dataset is looked for.
CLOCK_SKEW = timedelta(minutes=5)
_PAGE = 100
# A signed address may have expired; a new one is asked for so often.
_PART_TRIES, _PART_PAUSE_S = 4, 1.0

# Reads a part of a result on the local disk: its path, its rows as Cohere counts them.
ReadPart = Callable[[Path, int | None], Iterator[RowOutcome]]


class CohereDatasets:
    """Uploads inputs under names that find them again, and reads results part by part."""

    def __init__(
        self,
        http: CohereHttp,
        kind: str,
        *,
        options: Mapping[str, str] | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Use a connection.

        Args:
            http: of the account.
            kind: of inputs, as Cohere calls it.
            options: of inputs, beside their name and kind.
            sleep: between tries to read a part.
        """
        self._http = http
        self._kind = kind
        self._options = dict(options or {})
        self._sleep = sleep

    def ready(self, requests: RequestFile, name: str, uploaded_since: datetime | None) -> str:
        """Id of a dataset of these requests that jobs may read; it is uploaded unless it is there.

        Raises:
            TransientError: code ``dataset-not-ready``: its validation takes time, and it is found
                by its name later; ``upload-lost``.
            RefusedError: code ``dataset-refused``, or that of a file which is too large.
        """
        known = uploaded_since and self._uploaded(name, uploaded_since)
        query = {"name": name, "type": self._kind, **self._options}
        dataset = self._dataset(known or self._http.upload(requests.path, f"{name}.jsonl", query))
        if dataset.validation_status not in {"validated", "skipped"}:
            raise TransientError(
                f"dataset {dataset.id} is {dataset.validation_status}", code="dataset-not-ready"
            )
        return dataset.id

    def outcomes(self, dataset_id: str, read: ReadPart) -> Iterator[RowOutcome]:
        """All rows of a result; one part of it at a time lies on the local disk."""
        with TemporaryDirectory(prefix="embedmill-cohere-") as folder:
            for position in range(len(self._parts(dataset_id))):
                path = Path(folder) / f"part-{position:05d}.avro"
                rows = self._downloaded(dataset_id, position, path)
                yield from read(path, rows)
                path.unlink()

    def _dataset(self, dataset_id: str) -> Dataset:
        path = f"/v1/datasets/{dataset_id}"
        dataset = self._http.get(
            path, DatasetReply, doing=f"asking for dataset {dataset_id}"
        ).dataset
        if dataset.validation_status == "failed":
            said = dataset.validation_error or "no reason given"
            raise RefusedError(
                f"Cohere refused dataset {dataset_id}: {said}",
                code=FILE_TOO_LARGE if tells_of_size(said) else "dataset-refused",
            )
        return dataset

    def _uploaded(self, name: str, since: datetime) -> str | None:
        """Id of the newest dataset of this name that is not older, and was not refused."""
        offset = 0
        found: list[Dataset] = []
        while True:
            query = {"limit": str(_PAGE), "offset": str(offset), "datasetType": self._kind}
            page = self._http.get(
                "/v1/datasets", Datasets, doing="listing datasets", query=query
            ).datasets
            found += [
                dataset
                for dataset in page
                if dataset.name == name
                and dataset.validation_status != "failed"
                and moment_of(dataset.created_at) >= since - CLOCK_SKEW
            ]
            if len(page) < _PAGE:
                newest = max(found, key=lambda dataset: dataset.created_at, default=None)
                return newest.id if newest else None
            offset += _PAGE

    def _parts(self, dataset_id: str) -> list[Part]:
        try:
            parts = self._dataset(dataset_id).dataset_parts or []
        except RefusedError as error:
            if error.code not in NOT_THERE:
                raise
            raise RefusedError(
                f"{error}; Cohere keeps results for 30 days", code="results-gone"
            ) from error
        return sorted(parts, key=lambda part: part.index)

    def _downloaded(self, dataset_id: str, position: int, path: Path) -> int | None:
        """Fetch one part; its rows, as Cohere counts them. Each try has a new signed address."""
        for tries_left in reversed(range(_PART_TRIES)):
            part = self._parts(dataset_id)[position]
            try:
                self._http.download(part.url, path, part.size_bytes)
            except TransientError as error:
                if not tries_left:
                    raise TransientError(
                        f"part {position} of dataset {dataset_id}: {error}",
                        code="truncated-results",
                    ) from error
                self._sleep(_PART_PAUSE_S)
            else:
                return part.num_rows
        raise AssertionError("unreachable")
