"""Settings in, live access to a rate budget out."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from hashlib import blake2b
from typing import TYPE_CHECKING, assert_never

from embedmill.budget_keeper import BudgetKeeper, LocalKeeper
from embedmill.counts import RateUse
from embedmill.extras import extra
from embedmill.rate_budget import NANO, SECOND, Limits
from embedmill.rate_budget_settings import (
    OneRunSettings,
    RateBudgetSettings,
    RedisSettings,
    SliceSettings,
)
from embedmill.rate_limiter import Holder, RateLimiter
from embedmill.settings import EmbedderSettings, RemoteEmbedderSettings, Settings
from embedmill.settings_file import resolve_secret

if TYPE_CHECKING:
    from embedmill.redis_budget import RedisKeeper

# Of a request that is neither answered nor given up: what an embedder adds to its timeout.
_GRACE_S = 10.0
# For a first permit: longer than any limit by the minute lasts.
_PATIENCE_S = 600.0


def rate_budget_of(settings: EmbedderSettings) -> RateBudgetSettings | None:
    """The rate budget of an embedder; None: it asks nobody."""
    return settings.rate_budget if isinstance(settings, RemoteEmbedderSettings) else None


def limits_of(settings: RateBudgetSettings) -> Limits:
    """What all who share the budget may do together."""
    share = _share_of(settings)
    price = settings.dollars_per_million_tokens or 0.0
    money = None if settings.dollars is None else round(settings.dollars * NANO)
    return Limits(
        requests=_part(settings.requests_per_minute, share),
        tokens=_part(settings.tokens_per_minute, share),
        inputs=_part(settings.inputs_per_minute, share),
        concurrent=_part(settings.concurrent_requests, share),
        money=_part(money, share),
        price=round(price * NANO / 1_000),
        transit=round(settings.transit_s * SECOND),
    )


def _share_of(settings: RateBudgetSettings) -> float:
    shared_by = settings.shared_by
    return shared_by.share if isinstance(shared_by, SliceSettings) else 1.0


def _part(limit: int | None, share: float) -> int | None:
    return None if limit is None else max(1, int(limit * share))


def limiter_of_run(settings: Settings, keeper: BudgetKeeper | None) -> RateLimiter | None:
    """A worker's access to the budget of its run; see :func:`limiter_of`."""
    return limiter_of(
        settings.embedder,
        index=settings.index,
        keeper=keeper,
        deadline_s=settings.run.call_deadline_s,
    )


def limiter_of(
    settings: EmbedderSettings,
    *,
    index: str = "",
    keeper: BudgetKeeper | None = None,
    deadline_s: float = math.inf,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RateLimiter | None:
    """This process's access to the budget of an embedder; None: it has none.

    Args:
        settings: of the embedder.
        index: the tenant of a shared budget, unless the settings name one.
        keeper: of the run's budget; without it this process keeps one of its own. Of no use where
            a server keeps it.
        deadline_s: for a piece of work, of whoever waits for it.
        clock: seconds.
        sleep: waits for so many seconds.

    Raises:
        RefusedError: the server that keeps the budget does not answer.
    """
    budget = rate_budget_of(settings)
    if budget is None:
        return None
    limits = limits_of(budget)
    tenant, weight = "", 1
    match budget.shared_by:
        case OneRunSettings() | SliceSettings():
            keeper = keeper or LocalKeeper(limits, clock)
        case RedisSettings() as redis:
            tenant, weight = redis.tenant or index, redis.weight
            keeper = _redis_keeper(redis, budget_name(settings, redis), limits)
        case _:
            assert_never(budget.shared_by)
    holder = Holder(
        tenant=tenant,
        weight=weight,
        hold_s=_timeout_of(settings) + _GRACE_S,
        patience_s=min(_PATIENCE_S, deadline_s / 2),
        deadline_s=deadline_s,
        share=_share_of(budget),
    )
    return RateLimiter(keeper, limits, holder, clock=clock, sleep=sleep)


def require_keeper(settings: EmbedderSettings) -> None:
    """Make sure, where a server keeps the budget, that it answers.

    Raises:
        RefusedError: it does not.
        StopRunError: it does not let us in.
    """
    budget = rate_budget_of(settings)
    if budget is not None and isinstance(budget.shared_by, RedisSettings):
        redis = budget.shared_by
        keeper = _redis_keeper(redis, budget_name(settings, redis), limits_of(budget))
        keeper.check()
        keeper.close()


def own_limiter(settings: EmbedderSettings) -> RateLimiter:
    """Access to a budget of this process alone, for an embedder that has one."""
    limiter = limiter_of(settings)
    assert limiter is not None
    return limiter


def budget_name(settings: EmbedderSettings, redis: RedisSettings) -> str:
    """The name under which a server keeps a budget: the settings', or one by API key and model.

    Raises:
        SettingsError: the key is not set.
    """
    if redis.name is not None:
        return redis.name
    assert isinstance(settings, RemoteEmbedderSettings)
    return f"{settings.model}:{account_of(settings)}"


def account_of(settings: RemoteEmbedderSettings) -> str:
    """A digest of address and API key, by which another account is noticed.

    Raises:
        SettingsError: the key is not set.
    """
    key = resolve_secret(settings.api_key) if settings.api_key else ""
    account = f"{settings.base_url}\0{key}"
    # A digest: the key itself stays where it is.
    return blake2b(account.encode("utf-8"), digest_size=8).hexdigest()


def _redis_keeper(redis: RedisSettings, name: str, limits: Limits) -> RedisKeeper:
    with extra("a rate budget in Redis", "pip install 'embedmill[redis]'", ("redis",)):
        from embedmill.redis_budget import RedisKeeper

    return RedisKeeper(redis, name, limits)


def use_of(limiter: RateLimiter | None) -> RateUse:
    """What was used of a budget since this was asked last."""
    return RateUse() if limiter is None else limiter.take_use()


def _timeout_of(settings: EmbedderSettings) -> float:
    return settings.timeout_s if isinstance(settings, RemoteEmbedderSettings) else 0.0
