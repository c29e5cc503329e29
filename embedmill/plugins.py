"""Adapters of other packages: found by entry points, chosen by ``kind`` like our own.

A package adds a provider or a store with a few lines of its ``pyproject.toml``::

    [project.entry-points."embedmill.providers"]
    acme = "acme_embedmill:PROVIDER"

    [project.entry-points."embedmill.stores"]
    acme_shelf = "acme_embedmill:STORE"

What these name is a :class:`ProviderPlugin` or a :class:`StorePlugin`. It is imported whenever
embedmill starts, and before ``embedmill.settings`` is complete: it must not import that module, and
should import a heavy client only where it builds something. A plugin that cannot be used takes
nothing else with it; :func:`plugin_problems` says why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union, get_args

from pydantic import Field

from embedmill.recipe import EmbeddingRecipe, Metric
from embedmill.setting_types import Frozen

if TYPE_CHECKING:
    # Settings are read without numpy.
    from embedmill.embedder import Embedder
    from embedmill.tokenizer import TokenWindow
    from embedmill.vector_store import StoreLimits, VectorStore

PROVIDERS, STORES = "embedmill.providers", "embedmill.stores"


class ProviderPluginSettings(Frozen):
    """Settings of a provider of another package; its ``kind`` is a literal of its own."""

    kind: str


class StorePluginSettings(Frozen):
    """Settings of a store of another package; its ``kind`` is a literal of its own."""

    kind: str


ProviderT = TypeVar("ProviderT", bound=ProviderPluginSettings)
StoreT = TypeVar("StoreT", bound=StorePluginSettings)


@dataclass(frozen=True, slots=True)
class ProviderPlugin(Generic[ProviderT]):
    """How a provider of another package embeds.

    Attributes:
        settings: model of the section ``embedder`` of this kind.
        recipe: what the settings ask for, without loading a model.
        window: how the embedder counts and how much it reads, without loading a model.
        build: a live embedder that computes as the recipe says and in no other way.
        examples: settings that the contract suite is run with; it needs no key and no network.
    """

    settings: type[ProviderT]
    recipe: Callable[[ProviderT, Metric], EmbeddingRecipe]
    window: Callable[[ProviderT], TokenWindow]
    build: Callable[[ProviderT, EmbeddingRecipe], Embedder]
    examples: tuple[ProviderT, ...] = ()


@dataclass(frozen=True, slots=True)
class StorePlugin(Generic[StoreT]):
    """How a store of another package is opened.

    Attributes:
        settings: model of the section ``store`` of this kind.
        limits: what one write may hold, without opening the store.
        open: the live store.
        example: settings of an empty store for the contract suite; it is given a folder that no
            other store has.
    """

    settings: type[StoreT]
    limits: Callable[[StoreT], StoreLimits]
    open: Callable[[StoreT], VectorStore]
    example: Callable[[Path], StoreT] | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """What the entry points of a group lead to.

    Attributes:
        by_kind: plugins that can be used.
        packages: name and version of the package, by kind.
        problems: of the others.
    """

    by_kind: dict[str, Any] = field(default_factory=dict)
    packages: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


@cache
def found(group: str) -> Found:
    """Import what the entry points of ``group`` name, once in a process."""
    wanted = ProviderPlugin if group == PROVIDERS else StorePlugin
    base = ProviderPluginSettings if group == PROVIDERS else StorePluginSettings
    result = Found()
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        package = f"{point.dist.name} {point.dist.version}" if point.dist else "a package"
        try:
            plugin = point.load()
            kinds = _kinds(plugin, wanted, base, result.by_kind)
        except (ImportError, AttributeError, TypeError, ValueError, SyntaxError) as error:
            result.problems.append(_problem(point, package, error))
            continue
        result.by_kind.update(dict.fromkeys(kinds, plugin))
        result.packages.update(dict.fromkeys(kinds, package))
    return result


def plugin_problems() -> list[str]:
    """Plugins that are installed and cannot be used, and why."""
    return [*found(PROVIDERS).problems, *found(STORES).problems]


def provider_of(settings: ProviderT) -> ProviderPlugin[ProviderT]:
    """The plugin that these settings belong to."""
    plugin: ProviderPlugin[ProviderT] = found(PROVIDERS).by_kind[settings.kind]
    return plugin


def store_of(settings: StoreT) -> StorePlugin[StoreT]:
    """The plugin that these settings belong to."""
    plugin: StorePlugin[StoreT] = found(STORES).by_kind[settings.kind]
    return plugin


def choice(group: str, *own: type[Frozen]) -> Any:  # noqa: ANN401 - a type, made at run time
    """The type of a section that is one of our kinds, or one of an installed package.

    A plugin whose kind is one of ours is a problem, and ours is taken.
    """
    ours = {kind for model in own for kind in get_args(model.model_fields["kind"].annotation)}
    result = found(group)
    for kind in ours & result.by_kind.keys():
        result.problems.append(
            f"{result.packages.pop(kind)}: kind {kind!r} is one of embedmill's own"
        )
        del result.by_kind[kind]
    models = dict.fromkeys((*own, *(plugin.settings for plugin in result.by_kind.values())))
    return Annotated[Union[tuple(models)], Field(discriminator="kind")]  # noqa: UP007 - at run time


def _kinds(
    plugin: object, wanted: type, base: type[Frozen], taken: Mapping[str, object]
) -> Collection[str]:
    """Kinds of a plugin.

    Raises:
        TypeError: it is no plugin of this group.
        ValueError: another package has the kind.
    """
    if not isinstance(plugin, wanted):
        raise TypeError(f"it names {plugin!r:.80}, not a {wanted.__name__}")
    settings: Any = getattr(plugin, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, base)):
        raise TypeError(f"its settings are no subclass of {base.__name__}")
    kinds: tuple[Any, ...] = get_args(settings.model_fields["kind"].annotation)
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise TypeError("the kind of its settings is no Literal")
    for kind in kinds:
        if kind in taken:
            raise ValueError(f"kind {kind!r} is taken by another package")
    return kinds


def _problem(point: EntryPoint, package: str, error: Exception) -> str:
    return f"{package}: {point.group} {point.name} = {point.value}: {type(error).__name__}: {error}"


def installed() -> Iterator[tuple[str, str, str]]:
    """Section, kind and package of every plugin that can be used."""
    for section, group in (("embedder", PROVIDERS), ("store", STORES)):
        for kind, package in found(group).packages.items():
            yield section, kind, package
