"""What is kept, for how long, and what a client's copy is worth."""

import pytest

from portico.api.response_cache import ResponseCache, has_matching_etag
from portico.errors import BackendUnavailable
from portico.testing import FakeBackend
from portico.upstream.lifecycle.supervisor import LifecycleState
from tests.api.serving import V1, backend, many, side_door


class Clock:
    """Time that passes when it is told to."""

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

    first = bodies.get_or_render("key", 60, render)
    clock.now += 59
    assert bodies.get_or_render("key", 60, render) is first
    clock.now += 1
    second = bodies.get_or_render("key", 60, render)
    assert (second.content, made) == (b"1", [0, 1])
    assert second.etag != first.etag


def test_what_was_asked_for_longest_ago_goes_first():
    bodies = ResponseCache(Clock(), max_entries=2)
    bodies.get_or_render("a", 60, lambda: 1)
    bodies.get_or_render("b", 60, lambda: 2)
    bodies.get_or_render("a", 60, lambda: 3)
    bodies.get_or_render("c", 60, lambda: 4)
    assert len(bodies) == 2
    assert bodies.get_or_render("a", 60, lambda: 5).content == b"1"
    assert bodies.get_or_render("b", 60, lambda: 6).content == b"6"


def test_no_more_bytes_are_kept_than_there_is_room_for():
    bodies = ResponseCache(Clock(), max_bytes=100)
    for at in range(10):
        bodies.get_or_render(at, 60, lambda: "x" * 38)
    assert len(bodies) == 2
    assert len(bodies.get_or_render("large", 60, lambda: "x" * 1_000).content) == 1_002
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
def test_if_none_match_is_read_as_the_standard_has_it(given: list[str], expected: bool):
    assert has_matching_etag(given, '"a"') is expected


TIERS = {
    "tools/hot": "private, max-age=3600",
    "tools/categories": "private, max-age=21600",
    "tools/category/{category}": "private, max-age=3600",
    "tools/git/git_0": "private, max-age=0, must-revalidate",
    "servers": "private, max-age=0, must-revalidate",
    "servers/git": "private, max-age=0, must-revalidate",
}


async def test_each_tier_is_kept_as_long_as_it_may_be_and_revalidated_for_nothing():
    async with side_door({"git": backend(*many("git", 5, "Commits to a git repository"))}) as side:
        (card,) = (await side.get("tools/categories"))["categories"]
        for path, kept in TIERS.items():
            url = f"{V1}/{path.format(category=card['category'])}"
            reply = await side.http.get(url)
            assert (reply.status_code, reply.headers["cache-control"]) == (200, kept), path
            etag = reply.headers["etag"]
            assert etag.startswith('"')
            again = await side.http.get(url, headers={"if-none-match": f'"other", W/{etag}'})
            assert (again.status_code, again.content) == (304, b"")
            for name in ("etag", "cache-control", "vary"):
                assert again.headers[name] == reply.headers[name]
            assert (
                await side.http.get(url, headers={"if-none-match": '"other"'})
            ).content == reply.content
        for path in ("tools", "tools?query=git", "calls", "stats", "stats/tokens"):
            reply = await side.http.get(f"{V1}/{path}")
            assert reply.headers["cache-control"] == "no-store", path


async def test_a_tools_copy_is_good_until_it_is_used_or_changes():
    git = backend(*many("git", 3))
    async with side_door({"git": git}) as side:

        async def etag() -> str:
            return (await side.http.get(f"{V1}/tools/git/git_0")).headers["etag"]

        first = await etag()
        assert await etag() == first
        side.called("git.git_1")
        assert await etag() == first
        side.called("git.git_0")
        used = await etag()
        assert used != first


async def test_a_tier_is_worked_out_anew_when_its_time_is_up_or_the_catalog_changes():
    clock = Clock()
    async with side_door({"git": backend(*many("git", 3))}, clock=clock) as side:
        before = await side.get("tools/hot")
        side.called("git.git_0", times=2)
        assert await side.get("tools/hot") == before
        clock.now += 3_599
        assert await side.get("tools/hot") == before
        clock.now += 1
        assert (await side.get("tools/hot"))["tools"][0]["success_rate"] == 1.0
        side.called("git.git_2")
        await side.insight.standings.recompute()
        assert (await side.get("tools/hot"))["grounds"] == "use"


async def test_a_head_has_what_the_get_has_but_its_body():
    async with side_door({"git": backend(*many("git", 3))}) as side:
        for path in ("tools/hot", "tools", "tools/git/git_0", "tools/git/nothing"):
            get, head = [
                await side.http.request(method, f"{V1}/{path}") for method in ("GET", "HEAD")
            ]
            assert head.content == b""
            assert (head.status_code, dict(head.headers)) == (get.status_code, dict(get.headers))


async def test_no_tier_is_to_be_kept_while_a_server_is_on_its_first_start():
    gone = FakeBackend()
    gone.refuses = BackendUnavailable("it is not there")
    async with side_door({"git": backend(*many("git", 3)), "gone": gone}) as side:
        states: dict[LifecycleState, bool] = {"starting": False, "down": True}
        for state, kept in states.items():
            side.gateway.upstreams["gone"].set_state(state)
            for path in ("hot", "categories"):
                control = (await side.http.get(f"{V1}/tools/{path}")).headers["cache-control"]
                assert ("max-age" in control) is kept
                assert ("no-cache" in control) is not kept
