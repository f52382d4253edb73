"""How often a network may ask."""

from portico.server.http.network_rate_limiter import MAX_NETWORKS, NetworkRateLimiter


def test_a_burst_is_let_through_and_then_one_at_a_time() -> None:
    now = [0.0]
    limiter = NetworkRateLimiter(3, 10.0, clock=lambda: now[0])
    assert [limiter.take("a") for _ in range(4)] == [0.0, 0.0, 0.0, 10.0]
    assert limiter.take("b") == 0.0, "another network is not held up"
    now[0] = 9.0
    assert limiter.take("a") == 1.0
    now[0] = 10.0
    assert limiter.take("a") == 0.0
    assert limiter.take("a") == 10.0
    now[0] = 1_000.0
    assert [limiter.take("a") for _ in range(3)] == [0.0, 0.0, 0.0]


def test_the_memory_for_networks_is_bounded() -> None:
    limiter = NetworkRateLimiter(1, 10.0, clock=lambda: 0.0)
    for number in range(3 * MAX_NETWORKS):
        limiter.take(str(number))
    assert len(limiter._full_at) == MAX_NETWORKS  # pyright: ignore[reportPrivateUsage]
