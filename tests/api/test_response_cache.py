"""Caching of answers: duration, limits and conditional requests."""

import pytest

from portico.api.responses import ResponseCache, has_matching_etag
from portico.errors import BackendUnavailable
from portico.testing import FakeBackend
from portico.upstream.lifecycle.status import LifecycleState
from tests.api.api_client import V1, backend, make_tools, open_api


class Clock:
    """A clock that is set by the test."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_a_body_is_rendered_once_until_its_time_is_up():
    clock, made = Clock(), list[int]()
    bodies = ResponseCache(clock)

    def render() -> int:
        made.append(len(made))
        return made[-1]

    first = bodies.get_or_render(("key",), 60, render)
    clock.now += 59
    assert bodies.get_or_render(("key",), 60, render) is first
    clock.now += 1
    second = bodies.get_or_render(("key",), 60, render)
    assert (second.content, made) == (b"1", [0, 1])
    assert second.etag != first.etag


def test_the_least_recently_used_body_is_dropped_first():
    bodies = ResponseCache(Clock(), max_entries=2)
    bodies.get_or_render(("a",), 60, lambda: 1)
    bodies.get_or_render(("b",), 60, lambda: 2)
    bodies.get_or_render(("a",), 60, lambda: 3)
    bodies.get_or_render(("c",), 60, lambda: 4)
    assert len(bodies) == 2
    assert bodies.get_or_render(("a",), 60, lambda: 5).content == b"1"
    assert bodies.get_or_render(("b",), 60, lambda: 6).content == b"6"


def test_bodies_are_dropped_above_the_byte_limit():
    bodies = ResponseCache(Clock(), max_bytes=100)
    for at in range(10):
        bodies.get_or_render((at,), 60, lambda: "x" * 38)
    assert len(bodies) == 2
    assert len(bodies.get_or_render(("large",), 60, lambda: "x" * 1_000).content) == 1_002
    assert len(bodies) == 0


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], False),
        (['"a"'], True),
        (['W/"a"'], True),
        (['"b", W/"a" , "c"'], True),
        (['"b"', '"a"'], True),
        (["*"], True),
        (['"b"'], False),
        (["a"], False),
        ([""], False),
        (['"'], False),
        (['"a'], False),
        (['*, "b"'], False),
    ],
)
def test_if_none_match_follows_the_standard(given: list[str], expected: bool):
    assert has_matching_etag(given, '"a"') is expected


TIERS = {
    "tools/hot": "private, max-age=3600",
    "tools/categories": "private, max-age=21600",
    "tools/category/{category}": "private, max-age=3600",
    "tools/git/git_0": "private, max-age=0, must-revalidate",
    "servers": "private, max-age=0, must-revalidate",
    "servers/git": "private, max-age=0, must-revalidate",
}


async def test_each_tier_is_cached_for_its_time_and_revalidated_by_etag():
    async with open_api(
        {"git": backend(*make_tools("git", 5, "Commits to a git repository"))}
    ) as api:
        (card,) = (await api.get("tools/categories"))["categories"]
        for path, kept in TIERS.items():
            url = f"{V1}/{path.format(category=card['category'])}"
            reply = await api.http.get(url)
            assert (reply.status_code, reply.headers["cache-control"]) == (200, kept), path
            etag = reply.headers["etag"]
            assert etag.startswith('"')
            again = await api.http.get(url, headers={"if-none-match": f'"other", W/{etag}'})
            assert (again.status_code, again.content) == (304, b"")
            for name in ("etag", "cache-control", "vary"):
                assert again.headers[name] == reply.headers[name]
            assert (
                await api.http.get(url, headers={"if-none-match": '"other"'})
            ).content == reply.content
        for path in ("tools", "tools?query=git", "calls", "stats", "stats/tokens"):
            reply = await api.http.get(f"{V1}/{path}")
            assert reply.headers["cache-control"] == "no-store", path


async def test_a_tools_copy_is_good_until_it_is_used_or_changes():
    git = backend(*make_tools("git", 3))
    async with open_api({"git": git}) as api:

        async def etag() -> str:
            return (await api.http.get(f"{V1}/tools/git/git_0")).headers["etag"]

        first = await etag()
        assert await etag() == first
        api.record_call("git.git_1")
        assert await etag() == first
        api.record_call("git.git_0")
        used = await etag()
        assert used != first


async def test_a_tier_is_rendered_again_when_it_expires_or_the_catalog_changes():
    clock = Clock()
    async with open_api({"git": backend(*make_tools("git", 3))}, clock=clock) as api:
        before = await api.get("tools/hot")
        api.record_call("git.git_0", times=2)
        assert await api.get("tools/hot") == before
        clock.now += 3_599
        assert await api.get("tools/hot") == before
        clock.now += 1
        assert (await api.get("tools/hot"))["tools"][0]["success_rate"] == 1.0
        api.record_call("git.git_2")
        await api.usage_data.standings.recompute()
        assert (await api.get("tools/hot"))["grounds"] == "use"


async def test_a_head_has_what_the_get_has_but_its_body():
    async with open_api({"git": backend(*make_tools("git", 3))}) as api:
        for path in ("tools/hot", "tools", "tools/git/git_0", "tools/git/nothing"):
            get, head = [
                await api.http.request(method, f"{V1}/{path}") for method in ("GET", "HEAD")
            ]
            assert head.content == b""
            assert (head.status_code, dict(head.headers)) == (get.status_code, dict(get.headers))


async def test_no_tier_is_cacheable_while_a_server_starts_for_the_first_time():
    gone = FakeBackend()
    gone.refuses = BackendUnavailable("it is not there")
    async with open_api({"git": backend(*make_tools("git", 3)), "gone": gone}) as api:
        states: dict[LifecycleState, bool] = {"starting": False, "down": True}
        for state, kept in states.items():
            api.gateway.upstreams["gone"].set_state(state)
            for path in ("hot", "categories"):
                control = (await api.http.get(f"{V1}/tools/{path}")).headers["cache-control"]
                assert ("max-age" in control) is kept
                assert ("no-cache" in control) is not kept
