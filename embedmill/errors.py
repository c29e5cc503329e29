"""Errors, ordered by what the caller should do next.

Every class takes one message; facts are keyword-only and have defaults, so that each error survives
pickling (and with it the way back from a Ray actor) with its attributes.
"""

from __future__ import annotations


class EmbedmillError(Exception):
    """Root of the tree; never raised itself.

    Attributes:
        code: short stable word for records and for grouping (``"encoding"``, ``"dimension"``).
        hint: what the user can type or change next; empty when there is nothing to say.
    """

    code = "error"

    def __init__(self, message: str, *, code: str = "", hint: str = "") -> None:
        super().__init__(message)
        if code:
            self.code = code
        self.hint = hint


class PermanentError(EmbedmillError):
    """This row can never succeed as it is: it becomes a dead letter, its neighbours go on."""

    code = "permanent"


class TransientError(EmbedmillError):
    """Nothing happened; the same call may succeed later."""

    code = "transient"


class RateLimitedError(TransientError):
    """The other side asks to wait; never counts as a failure of the row.

    Attributes:
        retry_after: seconds to wait, or None when the other side did not say.
    """

    code = "rate-limited"

    def __init__(
        self, message: str, *, retry_after: float | None = None, code: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.retry_after = retry_after


class WorkerDiedError(TransientError):
    """The process that held a call is gone, or its deadline passed; the call may have run.

    Attributes:
        running: whether the call was running (and may be to blame) or was still queued.
    """

    code = "worker-died"

    def __init__(
        self, message: str, *, running: bool = True, code: str = "", hint: str = ""
    ) -> None:
        super().__init__(message, code=code, hint=hint)
        self.running = running


class OutcomeUnknownError(EmbedmillError):
    """The call may or may not have taken effect: look before repeating it."""

    code = "outcome-unknown"


class RefusedError(EmbedmillError):
    """Nothing was changed; the message and the hint say what to type next."""

    code = "refused"


class SettingsError(RefusedError):
    """The settings cannot be used as they are."""

    code = "settings"


class MissingExtraError(RefusedError):
    """An optional dependency is not installed; the hint is the install line."""

    code = "missing-extra"


class RecipeMismatchError(RefusedError):
    """The settings ask for another recipe than the index version has."""

    code = "recipe-mismatch"


class ModelDriftError(RefusedError):
    """The model no longer makes the vectors that it made when the index began to use it."""

    code = "model-drift"


class IndexLockedError(RefusedError):
    """Somebody else holds what this run needs: the index or an embedded store."""

    code = "locked"


class ShardOwnedElsewhereError(RefusedError):
    """Another writer committed the segment number that this one wanted."""

    code = "shard-owned-elsewhere"


class ManifestConflictError(RefusedError):
    """Another process committed to the manifest since it was read."""

    code = "manifest-conflict"


class SourceError(RefusedError):
    """The source as a whole cannot be read: no such path, no match, a required column is absent."""

    code = "source"


class AlreadyExistsError(RefusedError):
    """A create-only put found its name taken; what is there is untouched."""

    code = "already-exists"


class DamagedFileError(RefusedError):
    """A committed file of the workspace does not read back as what was written."""

    code = "damaged-file"


class NewerFormatError(RefusedError):
    """A file of the workspace was written by a newer embedmill than this one."""

    code = "newer-format"


class StopRunError(EmbedmillError):
    """Credentials, billing, a full disk: finish what is in flight, keep everything, exit."""

    code = "stop-run"


class DeletionsWithheldError(StopRunError):
    """All is done but the deletions: there were too many to believe in them."""

    code = "too-many-deletions"


class CountsMismatchError(StopRunError):
    """The counts of a run do not add up; the run failed whatever else it did."""

    code = "counts-mismatch"
