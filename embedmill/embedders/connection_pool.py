"""Connections to the address of a server, straight or through the proxy of the environment."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import urllib3
from urllib3.util import make_headers, parse_url

from embedmill.errors import SettingsError

# Seconds to reach the server, and then to send a request.
_CONNECT_S = 30


def pool_of(url: str, *, timeout_s: float, connections: int) -> urllib3.PoolManager:
    """A pool for requests to ``url``; none is repeated by it, and no redirection followed.

    Args:
        url: an address.
        timeout_s: silence after which a request counts as lost.
        connections: that are kept open.

    Raises:
        SettingsError: it is no address, or the environment's proxy is none that can be used.
    """
    scheme = _scheme_of(url)
    options: dict[str, Any] = {
        "num_pools": 1,
        "maxsize": connections,
        "retries": False,
        "timeout": urllib3.Timeout(connect=min(_CONNECT_S, timeout_s), read=timeout_s),
    }
    if scheme == "https":
        # Whom to trust is the same for all requests, those of jobs too.
        options["ssl_context"] = httpx2.create_ssl_context()
    proxy = _proxy_for(url, scheme)
    if proxy is None:
        return urllib3.PoolManager(**options)
    try:
        address, headers = proxy
        return urllib3.ProxyManager(address, proxy_headers=headers, **options)
    except (ValueError, urllib3.exceptions.HTTPError) as error:
        raise SettingsError(
            f"the proxy for {scheme} in the environment cannot be used: {error}",
            hint="http and https proxies can; NO_PROXY names servers to be reached without one",
        ) from error


def _scheme_of(url: str) -> str:
    try:
        parts = parse_url(url)
    except urllib3.exceptions.LocationParseError as error:
        raise SettingsError(f"embedder.base_url: {url!r} is no address: {error}") from error
    if parts.scheme not in {"http", "https"} or not parts.host:
        raise SettingsError(
            f"embedder.base_url: {url!r} is no address",
            hint="an address begins with https:// or http://",
        )
    return parts.scheme


def _proxy_for(url: str, scheme: str) -> tuple[str, dict[str, str]] | None:
    """Address and headers of the proxy; None: there is none for this server."""
    known = getproxies()
    proxy = known.get(scheme) or known.get("all")
    if not proxy or proxy_bypass(urlsplit(url).netloc.rpartition("@")[2]):
        return None
    parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    account, _, host = parts.netloc.rpartition("@")
    headers = make_headers(proxy_basic_auth=unquote(account)) if account else {}
    return urlunsplit((parts.scheme, host, "", "", "")), headers
