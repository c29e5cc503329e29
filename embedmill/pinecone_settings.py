"""Settings of Pinecone: one serverless index, whose namespaces are collections."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints, model_validator
from pydantic_core import PydanticCustomError

from embedmill.setting_types import Frozen, NonEmpty, SecretRef
from embedmill.workspace_settings import WorkspaceSettings

# 1 to 45 characters, lowercase letters, digits and hyphens; Pinecone's identifier limits.
IndexName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?$")]
Url = Annotated[str, StringConstraints(pattern=r"^https?://[^\s/]+")]
# Of one upsert; Pinecone's operation limits, as of November 2026.
MAX_RECORDS = 1000
MAX_REQUEST_BYTES = 2_000_000
# The limit is said as "2 MB"; what a server counts in it beside the body is not said.
_REQUEST_BYTES = 1_900_000


class BulkImportSettings(Frozen):
    """Large copies: files in a bucket, which Pinecone reads by itself."""

    bucket: WorkspaceSettings = Field(
        description="Where the files are put, an `s3://` address with the keys of `workspace`; "
        "they are deleted once they are imported."
    )
    integration: NonEmpty | None = Field(
        default=None,
        description="Id of the storage integration that lets Pinecone read the bucket; a public "
        "one needs none.",
    )
    from_records: int = Field(
        default=1_000_000,
        gt=0,
        description="Copies of fewer records are written as usual: an import takes at least ten "
        "minutes.",
    )
    poll_s: float = Field(
        default=30.0, gt=0, description="Between two looks at an import that goes on, in seconds."
    )

    @model_validator(mode="after")
    def _is_a_bucket_that_is_read(self) -> Self:
        if not self.bucket.url.startswith("s3://"):
            raise PydanticCustomError("bucket", "only s3:// addresses are known to be read")
        return self


class PineconeSettings(Frozen):
    """Serverless indexes of Pinecone; a collection is a namespace in one of them.

    An index has one dimension and one metric for ever: what fits neither goes into an index beside
    it, whose name ends with both (``docs-1536-cosine``).
    """

    kind: Literal["pinecone"]
    index: IndexName = Field(
        description="Name of the Pinecone index: lowercase letters, digits and hyphens."
    )
    api_key: SecretRef = Field(
        default="${PINECONE_API_KEY}", description="`${NAME}` of an environment variable."
    )
    create_index: bool = Field(
        default=True, description="Create Pinecone indexes where there are none."
    )
    cloud: Literal["aws", "gcp", "azure"] = Field(
        default="aws", description="Where the Pinecone index is created."
    )
    region: NonEmpty = Field(
        default="us-east-1", description="Region of the cloud where it is created."
    )
    control_url: Url | None = Field(
        default=None, description="Address of the control plane, for proxies and fakes."
    )
    data_url: Url | None = Field(
        default=None,
        description="Address of the index itself, for proxies and fakes; else what the control "
        "plane says.",
    )
    timeout_s: float = Field(
        default=60.0, gt=0, description="Silence after which a request counts as lost."
    )
    index_timeout_s: float = Field(
        default=300.0, gt=0, description="Most that a new Pinecone index may take to be ready."
    )
    consistency_timeout_s: float = Field(
        default=120.0,
        gt=0,
        description="Most that writes may take to be seen by a count or a listing.",
    )
    count_settles_s: float = Field(
        default=2.0,
        ge=0,
        description="How long a count must stand still before it is believed.",
    )
    records_per_request: int = Field(
        default=MAX_RECORDS, gt=0, le=MAX_RECORDS, description="Records in one write at most."
    )
    request_bytes: int = Field(
        default=_REQUEST_BYTES,
        ge=100_000,
        le=MAX_REQUEST_BYTES,
        description="Bytes of one write at most; Pinecone takes 2 MB.",
    )
    writers: int = Field(
        default=8,
        gt=0,
        description="Processes that may write at once, one request of each; Pinecone takes 100 "
        "requests per second and namespace.",
    )
    bulk_import: BulkImportSettings | None = Field(
        default=None,
        description="Let Pinecone read large copies (`embedmill copy`) from a bucket; without it "
        "they are written like everything else.",
    )

    @model_validator(mode="after")
    def _imports_reach_it(self) -> Self:
        if self.bulk_import is not None and self.cloud != "aws":
            raise PydanticCustomError(
                "import_cloud",
                "bulk_import reads from S3 into indexes on aws only; cloud is {cloud}",
                {"cloud": self.cloud},
            )
        return self
