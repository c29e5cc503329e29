"""The query contract of an index version: what whoever embeds queries for it must do.

It stands in the workspace as plain JSON, ``indexes/<index>/versions/v3/contract.json``, for
services that read it themselves, and ``embedmill check-query`` holds a service against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import orjson

from embedmill.canary import CANARY_TEXTS, Canary, CanaryLayer, cosine
from embedmill.embedder import Vectors
from embedmill.errors import RefusedError
from embedmill.manifest import IndexVersion
from embedmill.workspace import Workspace, create_once

FORMAT = "1"
# What a norm of 1 may differ by: rounding to bfloat16 stays below.
_NORM_TOLERANCE = 1e-3
# What it says of a service when only the vector of this text differs.
_HABITS = {
    "capitals": ("text", "it changes capital letters"),
    "accents": ("text", "it changes letters outside of ASCII, or their encoding"),
    "white space": ("text", "it changes white space: strips or joins lines"),
    "long": ("max_tokens", "it cuts long texts at another length"),
}


@dataclass(frozen=True, slots=True)
class QueryContract:
    """What whoever embeds queries for a version must do.

    Attributes:
        index: that is queried.
        version: of it (``v3``).
        collection: where its records are.
        canary: recipe and vectors.
    """

    index: str
    version: str
    collection: str
    canary: Canary

    def to_json(self) -> dict[str, Any]:
        """As services read it."""
        recipe = asdict(self.canary.recipe)
        return {
            "format": FORMAT,
            "index": self.index,
            "version": self.version,
            "collection": self.collection,
            "alias": self.index,
            **recipe,
            "recipe": self.canary.recipe.id,
            "parity": [
                {"name": name, "text": text, "query_vector": self.canary.queries[name].tolist()}
                for name, text in CANARY_TEXTS.items()
                if name in self.canary.queries
            ],
        }


def contract_of(workspace: Workspace, index: str, version: IndexVersion) -> QueryContract:
    """The contract of a version.

    Raises:
        RefusedError: nothing was ever embedded under its recipe.
    """
    canary = CanaryLayer(workspace, index).read(version.embedding)
    if canary is None:
        raise RefusedError(
            f"{version.name} of index {index!r} has no query contract: nothing was embedded under "
            "its recipe since contracts exist",
            code="no-contract",
            hint="make it from the model as it is now with: embedmill evaluate SETTINGS",
        )
    return QueryContract(index, version.name, version.collection, canary)


def publish_contract(workspace: Workspace, contract: QueryContract) -> str:
    """Put the contract into the workspace, for services; doing it again changes nothing.

    Returns:
        Its path in the workspace.
    """
    path = f"indexes/{contract.index}/versions/{contract.version}/contract.json"
    create_once(workspace, path, orjson.dumps(contract.to_json(), option=orjson.OPT_INDENT_2))
    return path


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which a service embeds queries differently.

    Attributes:
        field: of the contract that it breaks (``dimension``, ``query_prompt``, ``text``).
        text: name of the parity text that shows it, "" for all.
        detail: for a person.
    """

    field: str
    text: str
    detail: str


@dataclass(frozen=True, slots=True)
class Parity:
    """How a service did.

    Attributes:
        cosines: with the contract's vectors, by name of the text.
        differences: empty when it embeds queries as the index expects.
        notes: what differs without consequence.
    """

    cosines: Mapping[str, float]
    differences: Sequence[Difference]
    notes: Sequence[str] = ()


def held_against(
    contract: QueryContract, answers: Mapping[str, Vectors], *, least: float
) -> Parity:
    """Compare a service's vectors with the contract's.

    Args:
        contract: of the version that is searched.
        answers: vector of each parity text, shape (dimension,), by its name.
        least: cosine that counts as the same.
    """
    recipe = contract.canary.recipe
    wrong_shape = _of_other_dimension(contract, answers, least)
    if wrong_shape:
        return Parity({}, wrong_shape)
    broken = [name for name, vector in answers.items() if not np.isfinite(vector).all()]
    if broken:
        details = [Difference("vector", name, "it holds NaN or infinity") for name in broken]
        return Parity({}, details)
    cosines = {
        name: cosine(vector, answers[name]) for name, vector in contract.canary.queries.items()
    }
    differences = list(_directions(contract, answers, cosines, least))
    lengths = _lengths(answers) if recipe.normalise else ""
    if lengths and recipe.metric != "cosine":
        differences.append(Difference("normalise", "", lengths))
    notes = [f"{lengths}; under cosine that changes no ranking"] if lengths else []
    return Parity(cosines, differences, notes if recipe.metric == "cosine" else ())


def _of_other_dimension(
    contract: QueryContract, answers: Mapping[str, Vectors], least: float
) -> list[Difference]:
    expected = contract.canary.recipe.dimension
    found = sorted({len(vector) for vector in answers.values()} - {expected})
    if not found:
        return []
    detail = f"vectors of dimension {', '.join(map(str, found))}; the index has {expected}"
    name, vector = next(iter(contract.canary.queries.items()))
    if len(answers[name]) > expected and cosine(answers[name][:expected], vector) >= least:
        detail += f"; their first {expected} components are right: cut them, then normalise"
    return [Difference("dimension", "", detail)]


def _directions(
    contract: QueryContract,
    answers: Mapping[str, Vectors],
    cosines: Mapping[str, float],
    least: float,
) -> Sequence[Difference]:
    off = [name for name, value in cosines.items() if not value >= least]
    if not off:
        return []
    if off == [name for name in cosines if name in _HABITS and name in off]:
        return [
            Difference(_HABITS[name][0], name, f"cosine {cosines[name]:.4f}: {_HABITS[name][1]}")
            for name in off
        ]
    worst = min(off, key=lambda name: cosines[name])
    shown = f"{len(off)} of {len(cosines)} texts differ, {worst!r} by cosine {cosines[worst]:.4f}"
    field, why = _explanation(contract, answers, least)
    return [Difference(field, "", f"{shown}: {why}")]


def _explanation(
    contract: QueryContract, answers: Mapping[str, Vectors], least: float
) -> tuple[str, str]:
    """What is wrong when plain texts differ too: the field and the reason."""
    canary = contract.canary
    recipe = canary.recipe
    if canary.documents and _near(canary.documents, answers, least):
        if recipe.query_prompt == recipe.document_prompt:
            asked, other = recipe.input_type("query"), recipe.input_type("document")
            return "query_input_type", (
                f"it embeds queries as documents; ask with input_type {asked!r}, not {other!r}"
            )
        return "query_prompt", (
            f"it embeds queries as documents; put {recipe.query_prompt!r} before a query, not "
            f"{recipe.document_prompt!r}"
        )
    for name, vector in canary.queries.items():
        other = next((o for o, a in answers.items() if o != name and cosine(vector, a) > least), "")
        if other:
            return "order", f"the vector of text {name!r} came back for text {other!r}"
    prompt = f", the prompt {recipe.query_prompt!r}" if recipe.query_prompt else ", no prompt"
    return "model", (
        f"another model, revision or prompt; the index has {recipe.model!r} at revision "
        f"{recipe.revision!r}{prompt}"
    )


def _near(expected: Mapping[str, Vectors], answers: Mapping[str, Vectors], least: float) -> bool:
    return all(cosine(vector, answers[name]) >= least for name, vector in expected.items())


def _lengths(answers: Mapping[str, Vectors]) -> str:
    norms = [float(np.linalg.norm(vector.astype(np.float64))) for vector in answers.values()]
    off = max(norms, key=lambda norm: abs(norm - 1))
    if abs(off - 1) <= _NORM_TOLERANCE:
        return ""
    return f"vectors are not normalised (norm {off:.3f}; the index has 1)"
