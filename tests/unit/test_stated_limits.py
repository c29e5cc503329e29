"""What replies say about an account's limits."""

import pytest

from embedmill.stated_limits import StatedLimits


@pytest.mark.parametrize(
    ("headers", "requests", "tokens"),
    [
        ({}, 0, 0),
        ({"limit-requests": "5000", "limit-tokens": "1000000"}, 5000, 1_000_000),
        ({"limit-requests": "5000", "reset-requests": "12ms"}, 5000, 0),
        ({"limit-tokens": "40000", "reset-tokens": "60"}, 0, 40_000),
        # Whole again in hours: a limit by the day.
        ({"limit-requests": "200", "reset-requests": "7m12s"}, 0, 0),
        ({"limit-requests": "-1", "limit-tokens": "many"}, 0, 0),
    ],
)
def test_limits_by_the_minute_are_read_and_others_are_not(headers, requests, tokens):
    named = {f"x-ratelimit-{name}": value for name, value in headers.items()}
    assert StatedLimits.of(named) == StatedLimits(requests, tokens)


def test_a_trial_key_of_cohere_has_a_limit_of_calls():
    assert StatedLimits.of({"x-trial-endpoint-call-limit": "100"}) == StatedLimits(100, 0)
