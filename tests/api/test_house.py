"""Servers, calls and figures over REST."""

from portico.access import Caller
from portico.api import models
from portico.errors import BackendUnavailable
from portico.events import ToolsShown
from portico.rendering.token_count import get_best_counter
from portico.testing import FakeBackend
from tests.api.serving import V1, backend, many, side_door


async def test_servers_are_listed_with_how_they_are():
    down = FakeBackend()
    down.refuses = BackendUnavailable("it is not there")
    async with side_door({"git": backend(*many("git", 3)), "gone": down}) as side:
        body = await side.get("servers")
        models.ServerList.model_validate(body)
        assert [card["server"] for card in body["servers"]] == ["git", "gone"]
        git, gone = body["servers"]
        assert (git["tools"], git["state"]) == (3, "ready")
        assert gone["state"] == "down"
        assert "it is not there" in gone["reason"]
        assert "tools" not in gone


async def test_why_a_server_is_down_is_told_without_its_secrets():
    down = FakeBackend()
    down.refuses = BackendUnavailable(
        "exited (stderr: no login with API_TOKEN=hidden-1 at https://me:hidden-2@db/x)"
    )
    async with side_door({"gone": down}) as side:
        for path in ("servers", "servers/gone"):
            text = (await side.http.get(f"{V1}/{path}")).text
            assert "exited (stderr" in text
            assert "hidden" not in text


async def test_many_servers_come_in_pages_that_fit():
    async with side_door({f"server-{at}": backend(*many("t", 1)) for at in range(60)}) as side:
        reply = await side.http.get(f"{V1}/servers?page_size=100&max_tokens=700")
        assert get_best_counter().count(reply.text) <= 700
        found = await side.every("servers", "servers", page_size=25, max_tokens=700)
        assert sorted(card["server"] for card in found) == sorted(side.gateway.upstreams)


async def test_a_server_is_shown_with_what_it_says_of_itself():
    async with side_door(
        {"my-git": backend(*many("git", 3), instructions="Ask before you push. " * 900)}
    ) as side:
        body = await side.get("servers/my_git", max_tokens=300)
        models.ServerDetails.model_validate(body)
        assert body["server"] == "my-git"
        assert body["left_out"] == ["instructions"]
        assert (await side.get(body["whole"]))["instructions"].startswith("Ask before you push.")
        problem = await side.get("servers/my-gti", status=404)
        assert problem["nearest"] == ["my-git"]


async def test_calls_are_listed_latest_first_without_what_they_were_given():
    async with side_door(
        {"git": backend(*many("git", 3)), "disk": backend(*many("read", 1))}
    ) as side:
        side.called("git.git_0", ms=5)
        side.called("git.git_1", ms=7, ok=False)
        side.called("disk.read_0")
        await side.insight.tool_usage.flush()
        body = await side.get("calls")
        models.CallList.model_validate(body)
        assert [call["tool"] for call in body["calls"]] == ["disk.read_0", "git.git_1", "git.git_0"]
        assert set(body["calls"][0]) == {"id", "at", "tool", "ok", "ms", "client"}
        assert [call["tool"] for call in (await side.get("calls", server="git"))["calls"]] == [
            "git.git_1",
            "git.git_0",
        ]
        assert [call["tool"] for call in (await side.get("calls", tool="git.git_0"))["calls"]] == [
            "git.git_0"
        ]
        assert [call["tool"] for call in (await side.get("calls", ok=False))["calls"]] == [
            "git.git_1"
        ]
        assert (await side.get("calls", server="git", tool="disk.read_0"))["calls"] == []
        paged = await side.every("calls", "calls", limit=1)
        assert [call["tool"] for call in paged] == ["disk.read_0", "git.git_1", "git.git_0"]
        only = await side.every("calls", "calls", limit=1, server="git", ok=True)
        assert [call["tool"] for call in only] == ["git.git_0"]


async def test_the_house_in_figures():
    async with side_door(
        {"git": backend(*many("git", 3)), "disk": backend(*many("read", 1))}
    ) as side:
        before = await side.get("stats")
        models.GatewayStats.model_validate(before)
        assert (before["tools"], before["servers"], before["calls"], before["tools_used"]) == (
            4,
            2,
            0,
            0,
        )
        assert before["tiers"] == {"hot": 0, "warm": 0, "standard": 0, "cold": 4}
        side.called("git.git_1", times=3)
        side.called("git.git_2", ok=False)
        await side.insight.standings.recompute()
        after = await side.get("stats")
        models.GatewayStats.model_validate(after)
        assert (after["calls"], after["calls_7d"], after["tools_used"], after["success_rate"]) == (
            4,
            4,
            2,
            0.75,
        )
        assert after["most_used"][0]["tool"] == "git.git_1"
        assert sum(after["tiers"].values()) == 4
        assert after["states"] == {"ready": 2}


async def test_the_ledger_says_what_was_saved_and_no_sessions_id():
    async with side_door({"git": backend(*many("git", 3))}) as side:
        side.gateway.bus.publish(
            ToolsShown(
                Caller("session-id-of-a-client", "agent"), "some words " * 100, is_listing=True
            )
        )
        await side.insight.ledger.flush()
        reply = await side.http.get(f"{V1}/stats/tokens")
        body = reply.json()
        models.TokenLedgerReport.model_validate(body)
        assert body["total"]["sessions"] == 1
        assert body["total"]["shown"] > 50
        (session,) = body["sessions"]
        assert (session["client"], session["answers"]) == ("agent", 1)
        assert session["saved"] == session["listing"] - session["shown"]
        assert "session-id-of-a-client" not in reply.text
