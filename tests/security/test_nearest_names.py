"""Finding 1: a wrong name is compared with so many others, so often, and no more."""

from typing import Any

from portico.catalog.address import MAX_COMPARED, find_nearest_names
from portico.testing import FakeBackend, connect, gateway_over

"""Without bounds the script below takes minutes before it is begun."""


async def test_a_script_of_thousands_of_wrong_names_is_answered():
    tools = [
        {"name": f"list_customer_records_{n}", "inputSchema": {"type": "object"}}
        for n in range(5_000)
    ]
    code = "\n".join(f"await s.lst_custmr_recrods_{n}()" for n in range(6_000))
    async with gateway_over({"s": FakeBackend(tools=tools)}) as gateway, connect(gateway) as client:
        result: Any = await client.call_tool("run_code", {"code": code})
        assert (
            "there is no tool s.lst_custmr_recrods_0. Did you mean s.list_customer_records_"
            in str(result.content)
        )


def test_names_beyond_the_bound_are_not_compared():
    names = [*(f"x{n}" for n in range(MAX_COMPARED)), "customers"]
    assert "customers" not in find_nearest_names("custmers", names)
    assert find_nearest_names("custmers", names[-10:]) == ("customers",)
