"""Servers, calls and statistics over REST."""

from portico.api import activity_models, models
from portico.callers import Caller
from portico.errors import BackendUnavailable
from portico.events import ToolsShown
from portico.rendering.token_budget import get_best_counter
from portico.testing import FakeBackend
from tests.api.api_client import V1, backend, make_tools, open_api


async def test_servers_are_listed_with_how_they_are():
    down = FakeBackend()
    down.refuses = BackendUnavailable("it is not there")
    async with open_api({"git": backend(*make_tools("git", 3)), "gone": down}) as api:
        body = await api.get("servers")
        models.ServerList.model_validate(body)
        assert [card["server"] for card in body["servers"]] == ["git", "gone"]
        git, gone = body["servers"]
        assert (git["tools"], git["state"]) == (3, "ready")
        assert gone["state"] == "down"
        assert "it is not there" in gone["reason"]
        assert "tools" not in gone


async def test_the_reason_why_a_server_is_down_is_shown_without_secrets():
    down = FakeBackend()
    down.refuses = BackendUnavailable(
        "exited (stderr: no login with API_TOKEN=hidden-1 at https://me:hidden-2@db/x)"
    )
    async with open_api({"gone": down}) as api:
        for path in ("servers", "servers/gone"):
            text = (await api.http.get(f"{V1}/{path}")).text
            assert "exited (stderr" in text
            assert "hidden" not in text


async def test_many_servers_come_in_pages_that_fit():
    async with open_api({f"server-{at}": backend(*make_tools("t", 1)) for at in range(60)}) as api:
        reply = await api.http.get(f"{V1}/servers?page_size=100&max_tokens=700")
        assert get_best_counter().count(reply.text) <= 700
        found = await api.get_all("servers", "servers", page_size=25, max_tokens=700)
        assert sorted(card["server"] for card in found) == sorted(api.gateway.upstreams)


async def test_a_server_is_shown_with_its_own_instructions():
    async with open_api(
        {"my-git": backend(*make_tools("git", 3), instructions="Ask before you push. " * 900)}
    ) as api:
        body = await api.get("servers/my_git", max_tokens=300)
        models.ServerDetails.model_validate(body)
        assert body["server"] == "my-git"
        assert body["left_out"] == ["instructions"]
        assert (await api.get(body["whole"]))["instructions"].startswith("Ask before you push.")
        problem = await api.get("servers/my-gti", status=404)
        assert problem["nearest"] == ["my-git"]


async def test_calls_are_listed_latest_first_without_arguments():
    async with open_api(
        {"git": backend(*make_tools("git", 3)), "disk": backend(*make_tools("read", 1))}
    ) as api:
        api.record_call("git.git_0", ms=5)
        api.record_call("git.git_1", ms=7, ok=False)
        api.record_call("disk.read_0")
        await api.usage_data.tool_usage.flush()
        body = await api.get("calls")
        activity_models.CallList.model_validate(body)
        assert [call["tool"] for call in body["calls"]] == ["disk.read_0", "git.git_1", "git.git_0"]
        call = body["calls"][0]
        assert set(call) == {"id", "at", "tool", "ok", "ms", "client", "person"}
        assert [call["tool"] for call in (await api.get("calls", server="git"))["calls"]] == [
            "git.git_1",
            "git.git_0",
        ]
        assert [call["tool"] for call in (await api.get("calls", tool="git.git_0"))["calls"]] == [
            "git.git_0"
        ]
        assert [call["tool"] for call in (await api.get("calls", ok=False))["calls"]] == [
            "git.git_1"
        ]
        assert (await api.get("calls", server="git", tool="disk.read_0"))["calls"] == []
        paged = await api.get_all("calls", "calls", limit=1)
        assert [call["tool"] for call in paged] == ["disk.read_0", "git.git_1", "git.git_0"]
        only = await api.get_all("calls", "calls", limit=1, server="git", ok=True)
        assert [call["tool"] for call in only] == ["git.git_0"]


async def test_the_gateway_statistics():
    async with open_api(
        {"git": backend(*make_tools("git", 3)), "disk": backend(*make_tools("read", 1))}
    ) as api:
        before = await api.get("stats")
        models.GatewayStats.model_validate(before)
        assert (before["tools"], before["servers"], before["calls"], before["tools_used"]) == (
            4,
            2,
            0,
            0,
        )
        assert before["tiers"] == {"hot": 0, "warm": 0, "standard": 0, "cold": 4}
        api.record_call("git.git_1", times=3)
        api.record_call("git.git_2", ok=False)
        await api.usage_data.standings.recompute()
        after = await api.get("stats")
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


async def test_the_ledger_shows_saved_tokens_and_no_session_id():
    async with open_api({"git": backend(*make_tools("git", 3))}) as api:
        api.gateway.bus.publish(
            ToolsShown(
                Caller("session-id-of-a-client", "agent"), "some words " * 100, is_listing=True
            )
        )
        await api.usage_data.ledger.flush()
        reply = await api.http.get(f"{V1}/stats/tokens")
        body = reply.json()
        models.TokenLedgerReport.model_validate(body)
        assert body["total"]["sessions"] == 1
        assert body["total"]["shown"] > 50
        (session,) = body["sessions"]
        assert (session["client"], session["answers"]) == ("agent", 1)
        assert session["saved"] == session["listing"] - session["shown"]
        assert "session-id-of-a-client" not in reply.text
