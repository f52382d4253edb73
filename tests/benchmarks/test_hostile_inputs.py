"""Hostile inputs are as large as the gateway lets in: what it refuses at the door meets nothing."""

from benchmarks.hostile.all_kinds import KINDS
from benchmarks.hostile.kinds import CLIENT_LIMIT

from portico.config.limits import LimitsConfig
from portico.json_text.json_codec import has_more_values

REFUSED = {"4 MB of opening brackets", "a request over the limit"}
"""Kinds that are about the refusal."""


def test_requests_of_clients_are_within_the_limits() -> None:
    limits = LimitsConfig()
    assert limits.max_request_bytes == CLIENT_LIMIT
    too_large = {
        kind.name
        for kind in KINDS
        for _, params in kind.requests()
        if len(params) > limits.max_request_bytes
        or has_more_values(params.encode(errors="surrogatepass"), limits.max_request_values)
    }
    assert too_large == REFUSED
