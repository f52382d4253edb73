"""A path or a reference of a few hundred characters cannot make the gateway write, compare or hold
more than a bound.

Each is sent to a gateway of its own, in a process that is ended when it computes for long: what is
not refused in time would hold that process, and no test could stop it from inside.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [
    pytest.mark.skipif(
        sys.platform != "linux", reason="processes are limited in time as Linux does it"
    ),
]

CPU_S = 20
GROWN_MB = 300
ADDRESSES_GB = 6
"""What a process may address, so that one that is not refused is ended before the machine has no
memory left."""

GATEWAY = """
import asyncio, json, resource, sys
from portico.testing import FakeBackend, connect, gateway_over
from tests.interaction.fake_servers import get_text, text, tool

# Two texts that are equal and not the same, and one that differs at its end.
ROWS = {"rows": [{"id": n, "body": "x" * 1_000} for n in range(60)], "long": ["y" * 1_000_000, "y" * 1_000_000 + "z"]}

async def answers(cases):
    backend = FakeBackend([{**tool("rows"), "annotations": {"readOnlyHint": True}}, tool("say", value="string")])
    backend.on_call("rows", lambda _: text(json.dumps(ROWS)))
    backend.on_call("say", lambda arguments: text(str(len(json.dumps(arguments)))))
    async with gateway_over({"s": backend}) as gateway, connect(gateway, "memory", "modern") as client:
        kept = await client.call_tool("call_tool", {"name": "s.rows"})
        (link,) = [block for block in kept.content if block.type == "resource_link"]
        # Once before it is measured: the first path reads a library.
        await client.call_tool("read_result", {"result_id": str(link.uri), "path": "rows[0].id"})
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for name, arguments in cases:
            if name == "read_result":
                arguments = {"result_id": str(link.uri), **arguments}
            yield get_text(await client.call_tool(name, arguments))
        yield (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024

async def main():
    print(json.dumps([answer async for answer in answers(json.loads(sys.argv[1]))]))

for limit, most in ((resource.RLIMIT_CPU, int(sys.argv[2])), (resource.RLIMIT_AS, int(sys.argv[3]) * 2**30)):
    resource.setrlimit(limit, (most, most))
asyncio.run(main())
"""  # noqa: E501


def answers(*requests: tuple[str, dict[str, Any]]) -> list[str]:
    """Return what a gateway answers; fails where that takes it long or much memory."""
    command = [sys.executable, "-c", GATEWAY, json.dumps(requests), str(CPU_S), str(ADDRESSES_GB)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ran.returncode == 0, f"the gateway was ended: {ran.returncode} {ran.stderr[-500:]}"
    *found, grown = json.loads(ran.stdout.splitlines()[-1])
    assert grown < GROWN_MB
    return found


def double(times: int, step: str = "[@,@]") -> str:
    return "|".join([step] * times)


TWO = f"[(rows|{double(36)}),(rows|{double(36)})]"
"""Two values that are equal, each with 2^36 times the rows, and not the same."""


@pytest.mark.parametrize(
    "expected",
    [
        {
            f"{double(40)}|to_string(@)": "the path ",
            f"[{double(40)}]|[to_string(@)]": "the path ",
        },
        {
            f"{TWO}|[0]==[1]": "true",
            f"{TWO}|[0]!=[1]": "false",
            f"{TWO}|contains([[0]],[1])": "true",
        },
        {
            f"{double(40)}|abs(@)": "abs() takes number, not array",
            f"{double(40)}|sort(@)": "sort() takes",
        },
        {f"long|{double(9, '[@,@][]')}|length(join('',@))": "the path "},
        {f"long|{double(17, '[@,@][]')}|length(sort(@))": "the path "},
    ],
    ids=["written", "compared", "named in an error", "joined", "sorted"],
)
def test_what_a_path_has_doubled_is_not_unfolded_when_it_is(expected: dict[str, str]):
    found = answers(*(("read_result", {"path": path}) for path in expected))
    for answer, said in zip(found, expected.values(), strict=True):
        assert said in answer


@pytest.mark.parametrize(
    ("step", "said"),
    [
        ({"arguments": {"value": f"it is ${{inputs.x|{double(40)}}}"}}, "MiB"),
        ({"arguments": {"value": f"${{inputs.x|{double(40)}|to_string(@)}}"}}, "the path "),
        ({"if": f"[(inputs|{double(36)}),(inputs|{double(36)})]|[0]!=[1]"}, "skipped"),
    ],
    ids=["filled in", "written", "compared"],
)
def test_what_a_reference_in_a_workflow_has_doubled_is_not_unfolded_when_it_is(
    step: dict[str, Any], said: str
):
    steps = [{"id": "a", "tool": "s.say", **step}]
    assert said in answers(("run_workflow", {"steps": steps, "inputs": {"x": "0123456789"}}))[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"grep": "(?:" * 40 + "." + ")+" * 40}, "groups"),
        ({"grep": "(" * 10 + "." + ")" * 10 + "+$", "path": "long[0]"}, "match"),
    ],
    ids=["compiled", "remembered"],
)
def test_groups_of_a_pattern_that_repeat_are_bounded_when_they_are(
    arguments: dict[str, Any], said: str
):
    assert said in answers(("read_result", arguments))[0]
