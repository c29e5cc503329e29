"""Gates of the first version of an index: nothing stands before it that it could be worse than.

They are run where its records were written, with vectors of the questions that the run's own model
has made: neither a model nor a store is opened a second time. What would only repeat what the run
has just done (embedding again, the query contract) is left to ``embedmill evaluate``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from embedmill.chunk_sample import sampled_chunks
from embedmill.embedder import EmbeddedTexts, Role
from embedmill.errors import PermanentError, RefusedError
from embedmill.gate import GateResult, failed_gates
from embedmill.gates.bookkeeping import (
    applied_gate,
    books_of,
    dead_letters_gate,
    records_gate,
    store_ready_gate,
)
from embedmill.gates.labelled import labelled_gate
from embedmill.gates.self_retrieval import asked_for, self_retrieval_gates
from embedmill.gates.stored_vectors import read_back_gate, vector_health_gate
from embedmill.gates.subject import Subject
from embedmill.judgements import questions_of
from embedmill.manifest import IndexVersion
from embedmill.rate_assembly import rate_budget_of
from embedmill.recipe import EmbeddingRecipe
from embedmill.settings import Settings
from embedmill.vector_store import VectorStore
from embedmill.workspace import Workspace

# What these say is wrong, not poor: readers would miss records, or find others than were meant.
# What a model makes of texts may be poor because the texts are all alike.
INTEGRITY = frozenset({"applied", "store-ready", "records", "read-back"})
# Listing more ids than these takes long with some stores; their number has been compared already.
_MOST_IDS = 200_000


class Answered:
    """An embedder that has answered already: texts and what a worker's model made of them."""

    def __init__(
        self, recipe: EmbeddingRecipe, texts: Sequence[str], embedded: EmbeddedTexts | None
    ) -> None:
        self.recipe = recipe
        self._embedded = embedded
        self._rows = {text: row for row, text in enumerate(texts)}

    def embed(self, texts: Sequence[str], role: Role) -> EmbeddedTexts:
        """What was answered; a text that was not asked for fails."""
        del role
        vectors = np.full((len(texts), self.recipe.dimension), np.nan, np.float32)
        failures: dict[int, PermanentError] = {}
        for at, text in enumerate(texts):
            row = self._rows.get(text)
            if row is None or self._embedded is None:
                failures[at] = PermanentError("this text was not asked for", code="unasked")
            elif row in self._embedded.failures:
                failures[at] = self._embedded.failures[row]
            else:
                vectors[at] = self._embedded.vectors[row]
        return EmbeddedTexts(vectors, failures)


class FirstGates:
    """Holds the first version of an index against what needs no other version."""

    def __init__(self, settings: Settings, workspace: Workspace, version: IndexVersion) -> None:
        """Draw the sample.

        Args:
            settings: of the index.
            workspace: of the index.
            version: that is to be published; everything is applied.
        """
        self._settings = settings
        self._workspace = workspace
        self._version = version
        layers = Subject.layers_of(settings, workspace, version)
        self._sample = sampled_chunks(*layers, settings.gates.sample)

    def questions(self) -> list[str]:
        """What the version is to be searched for: parts of its own texts, and labelled questions.

        A provider is paid for what it is asked: parts of texts only where all gates decide.

        Raises:
            SettingsError: the files of labelled questions cannot be used.
        """
        asked = [asked_for(payload) for payload in self._sample.payloads if self._asks_parts]
        labels = questions_of(self._settings.gates)
        if labels is not None:
            asked += labels.texts.values()
        return list(dict.fromkeys(asked))

    @property
    def _asks_parts(self) -> bool:
        free = rate_budget_of(self._settings.embedder) is None
        return free or self._settings.gates.first_version == "all"

    def _self_retrieval(self, subject: Subject) -> tuple[GateResult, GateResult]:
        if self._asks_parts:
            return self_retrieval_gates(subject, None, self._sample)
        reason = "a provider is not asked for this by itself; embedmill evaluate SETTINGS asks"
        return (
            GateResult("self-retrieval", "not-applicable", message=reason),
            GateResult("slices", "not-applicable", message=reason),
        )

    def results(self, store: VectorStore, answers: Answered) -> tuple[GateResult, ...]:
        """What the gates say.

        Args:
            store: that holds the version's collection.
            answers: to :meth:`questions`.

        Raises:
            TransientError: the store could not be asked.
        """
        subject = Subject(self._settings, self._workspace, self._version, store, answers)
        books = books_of(subject)
        return (
            applied_gate(books),
            store_ready_gate(subject),
            records_gate(subject, books, most_ids=_MOST_IDS),
            dead_letters_gate(subject, books),
            read_back_gate(subject, self._sample),
            vector_health_gate(subject, self._sample),
            *self._self_retrieval(subject),
            labelled_gate(subject, None),
        )


def refusal_of_first(
    settings: Settings, version: IndexVersion, results: Sequence[GateResult]
) -> RefusedError | None:
    """Why readers may not see the first version of an index; None when they may."""
    every = settings.gates.first_version == "all"
    failed = [gate for gate in failed_gates(results) if every or gate.name in INTEGRITY]
    if not failed:
        return None
    listed = "\n".join(f"  {gate.name}: {gate.message}" for gate in failed)
    return RefusedError(
        f"{version.name} is complete, and does not pass {len(failed)} of {len(results)} gates; it "
        f"is kept, and not shown to readers:\n{listed}",
        code="gates",
        hint="see all figures with: embedmill evaluate SETTINGS; mend what is wrong and run the "
        "same command again, or send readers to it all the same: embedmill publish --force -c "
        "SETTINGS",
    )
