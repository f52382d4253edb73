"""Use by day, and the load of servers, over REST."""

import asyncio

from portico.api import activity_models as models
from portico.api.daily_routes import share_out, summarize_use
from portico.api.gateway_services import ConfigReport
from portico.config import Config
from portico.gateway.rest_app import RestApp
from portico.storage.rows import DailyRow, LedgerRow
from portico.testing import serve_http
from portico.upstream.backend import Raw
from tests.api.api_client import V1, backend, make_tools, open_api
from tests.gateways import TIMEOUT_S, run_gateway
from tests.http import open_client


def test_use_is_summed_up_by_day_server_and_client():
    rows = [
        DailyRow(100, "git", "a", 3, 4, 3, 0.0),
        DailyRow(101, "git", "b", 3, 1, 1, 0.0),
        DailyRow(101, "mail", "c", 3, 2, 0, 0.0),
    ]
    sessions = [
        LedgerRow("s1", "claude", "", 0.0, 101 * 86_400.0 + 5, 1_000, 100),
        LedgerRow("s2", "claude", "", 0.0, 100 * 86_400.0 + 5, 500, 100),
        LedgerRow("s3", "cursor", "", 0.0, 101 * 86_400.0 + 9, 200, 150),
    ]
    use = summarize_use(100, 2, rows, sessions)
    assert [(day.calls, day.failures, day.saved) for day in use.days] == [(4, 1, 400), (3, 2, 950)]
    assert [(one.server, one.calls, one.failures) for one in use.servers] == [
        ("git", 5, 1),
        ("mail", 2, 2),
    ]
    assert [(one.client, one.sessions, one.saved) for one in use.clients] == [
        ("claude", 2, 1_300),
        ("cursor", 1, 50),
    ]


def test_what_was_saved_is_shared_out_by_what_listing_each_server_costs():
    shares = share_out(900, {"mail": 100, "git": 200, "new": 0})
    assert [(one.server, one.definitions, one.saved) for one in shares] == [
        ("git", 200, 600),
        ("mail", 100, 300),
    ]
    assert share_out(900, {"new": 0}) == []


async def test_what_listing_each_server_costs_is_told_once_it_is_counted():
    async with run_gateway({"git": backend(*make_tools("git", 40))}) as gateway:
        async with serve_http(gateway, api=RestApp(gateway)) as url, open_client(url) as http:
            async with asyncio.timeout(TIMEOUT_S):
                body: Raw = {}
                while "savings" not in body:
                    await asyncio.sleep(0.01)
                    body = (await http.get(f"{V1}/stats/daily")).json()
        (share,) = body["savings"]
        assert share["server"] == "git"
        assert share["definitions"] > 0


async def test_every_day_is_there_whether_or_not_something_was_called():
    async with open_api({"git": backend(*make_tools("git", 1))}) as api:
        api.record_call("git.git_0", times=3)
        await api.usage_data.tool_usage.flush()
        body = await api.get("stats/daily", days=7)
        models.DailyUse.model_validate(body)
        assert len(body["days"]) == 7
        assert sum(day["calls"] for day in body["days"]) == 3
        assert body["servers"] == [{"server": "git", "calls": 3, "failures": 0}]


async def test_the_load_of_each_server_is_measured():
    async with run_gateway({"git": backend(*make_tools("git", 1))}) as gateway:
        gateway.ensure_monitoring()
        async with serve_http(gateway, api=RestApp(gateway)) as url, open_client(url) as http:
            await http.post(f"{V1}/calls", json={"tool": "git.git_0", "arguments": {}})
            body = (await http.get(f"{V1}/load")).json()
            models.GatewayLoad.model_validate(body)
            (git,) = body["servers"]
            assert (git["server"], git["state"], git["calls"]) == ("git", "ready", 1)
            assert "disabled" not in body


async def test_servers_that_are_switched_off_are_named():
    config = Config.model_validate(
        {"servers": {"old": {"command": "old-server", "disabled": True}, "git": {"command": "git"}}}
    )
    async with run_gateway({}) as gateway:
        api = RestApp(gateway, lambda: ConfigReport(config))
        async with serve_http(gateway, api=api) as url, open_client(url) as http:
            assert (await http.get(f"{V1}/load")).json()["disabled"] == ["old"]
