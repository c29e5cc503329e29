"""Connections of remote embedders: which proxy they go through, and addresses that are none."""

import pytest

pytest.importorskip("urllib3")

import urllib3

from embedmill.embedders.connection_pool import pool_of
from embedmill.errors import SettingsError

URL = "http://models.example/v1/embeddings"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def made(url=URL):
    return pool_of(url, timeout_s=10, connections=2)


def test_without_a_proxy_it_goes_straight():
    assert made().proxy is None


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_the_proxy_of_the_environment_is_used_with_its_account(monkeypatch, name):
    if name == "HTTP_PROXY":
        # Set by a client of a CGI program, the name could not be trusted.
        monkeypatch.delenv("REQUEST_METHOD", raising=False)
    monkeypatch.setenv(name, "http://someone:pass%40word@proxy.example:3128")
    pool = made()
    assert (pool.proxy.host, pool.proxy.port, pool.proxy.auth) == ("proxy.example", 3128, None)
    assert pool.proxy_headers == urllib3.util.make_headers(proxy_basic_auth="someone:pass@word")


@pytest.mark.parametrize("away", ["models.example", ".example", "*", "other, models.example"])
def test_servers_that_need_no_proxy_are_reached_without_one(monkeypatch, away):
    monkeypatch.setenv("http_proxy", "proxy.example:3128")
    assert made().proxy.host == "proxy.example"
    monkeypatch.setenv("no_proxy", away)
    assert made().proxy is None


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://proxy.example:1080")
    with pytest.raises(SettingsError, match="proxy for http in the environment"):
        made()


@pytest.mark.parametrize("url", ["localhost:1", "http://[::1", "ftp://127.0.0.1", "http://", ""])
def test_an_address_that_is_none_is_refused_at_once(url):
    with pytest.raises(SettingsError, match="base_url"):
        made(url)
