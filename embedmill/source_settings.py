"""Settings of sources: where documents are read from, and how rows and files become documents."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty
from embedmill.workspace_settings import BucketAccess, names_bucket


def _known_encoding(name: str) -> str:
    try:
        # Not an empty text: that is encoded without looking the name up.
        "x".encode(name)
    except (LookupError, ValueError):
        raise PydanticCustomError(
            "encoding", "{name} is no text encoding that Python knows", {"name": repr(name)}
        ) from None
    return name


Encoding = Annotated[str, AfterValidator(_known_encoding)]


def _one_character(text: str) -> str:
    # A shell, and YAML without quotes, have no other way to write a tab.
    character = "\t" if text == "\\t" else text
    if len(character) != 1 or character in '"\r\n\0':
        raise PydanticCustomError(
            "delimiter",
            'is {found}; it takes one character that is no quote and no line end, such as ";", '
            '"|" or "\\t" for a tab',
            {"found": repr(text)},
        )
    return character


Delimiter = Annotated[str, AfterValidator(_one_character)]


class FilesSourceSettings(Frozen):
    """A folder of documents; a document's id is its path relative to the folder."""

    kind: Literal["files"]
    path: NonEmpty = Field(
        description="Folder, or one file; or a prefix or object of a bucket: `s3://`, `gs://`, "
        "`az://`. What the index keeps below it (workspace, store) is left out."
    )
    bucket: BucketAccess | None = Field(
        default=None, description="How the bucket of an `s3://` path is reached."
    )
    include: tuple[str, ...] = Field(
        default=(
            "**/*.txt",
            "**/*.md",
            "**/*.rst",
            "**/*.py",
            "**/*.ipynb",
            "**/*.html",
            "**/*.htm",
        ),
        description="Glob patterns relative to the folder; a file is taken when one matches.",
    )
    exclude: tuple[str, ...] = Field(
        default=(), description="Glob patterns that win over `include`."
    )
    fallback_encoding: Encoding | None = Field(
        default=None,
        description="Encoding of files that are neither UTF-8 nor marked by a byte order mark or a "
        "coding line. Without it such a file becomes a dead letter. May be set or changed at any "
        "time: the next ingest cuts the documents that it decides anew, and no others; of a bucket "
        "it reads all objects once.",
    )
    follow_links: bool = Field(
        default=False,
        description="Follow symbolic links, each target once and only inside the folder.",
    )
    max_document_bytes: int = Field(
        default=64 * 2**20, gt=0, description="Larger files become dead letters."
    )

    @model_validator(mode="after")
    def _place_fits(self) -> Self:
        _require_place(self.path, self.bucket)
        if self.follow_links and names_bucket(self.path):
            raise PydanticCustomError("no_effect", "follow_links has no effect: buckets have none")
        return self


class TableSourceSettings(Frozen):
    """Rows of JSON lines, CSV, TSV or Parquet files (`.gz` too); one row is one document."""

    kind: Literal["table"]
    path: NonEmpty = Field(
        description="File, folder or glob; or object, prefix or glob in a bucket: `s3://`, "
        "`gs://`, `az://`. What the index keeps below it (workspace, store) is left out."
    )
    bucket: BucketAccess | None = Field(
        default=None, description="How the bucket of an `s3://` path is reached."
    )
    id_column: NonEmpty = Field(default="id", description="Exact string id of a row.")
    text_columns: tuple[str, ...] = Field(
        default=("text",), min_length=1, description="Joined in this order; empty ones left out."
    )
    text_separator: str = Field(default="\n\n", description="Between the text columns.")
    metadata_columns: tuple[str, ...] = Field(
        default=(), description="Kept with every chunk of the row."
    )
    media_type: Literal["text/plain", "text/markdown", "text/html"] = Field(
        default="text/plain", description="How the text is parsed."
    )
    encoding: Encoding | None = Field(
        default=None, description="Of text files; without it UTF-8, or what a byte order mark says."
    )
    delimiter: Delimiter = Field(
        default=",",
        description='Between the columns of `.csv` files, one character: `";"`, `"|"`, `"\\t"`; '
        "`.tsv` files always have tabs.",
    )
    max_document_bytes: int = Field(
        default=64 * 2**20, gt=0, description="Larger rows become dead letters."
    )

    @model_validator(mode="after")
    def _place_fits(self) -> Self:
        _require_place(self.path, self.bucket)
        return self


def _require_place(path: str, bucket: BucketAccess | None) -> None:
    scheme, there_is_one, _ = path.partition("://")
    if there_is_one and scheme.isalnum() and not names_bucket(path):
        raise PydanticCustomError(
            "scheme",
            "{path} is of no kind that is known; it takes a path of the file system, s3://, gs:// "
            "or az://",
            {"path": repr(path)},
        )
    if bucket is not None and not path.startswith("s3://"):
        raise PydanticCustomError(
            "no_effect", "bucket would have no effect: only an s3:// path takes it"
        )
