"""A meta-tool answers any arguments: with a result, or an error that names the mistake."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico import demo
from portico.config import BackendConfig, Config
from portico.config.limits import CodeConfig
from portico.gateway import GatewayRuntime
from portico.meta_tools import tool_definitions
from portico.scripts.sandbox.script import LANGUAGES
from portico.testing import gateway_over
from tests.fixtures import broken_command
from tests.fuzz import noise
from tests.fuzz.answer_checks import tool_result
from tests.fuzz.loop_thread import Running, examples, running
from tests.fuzz.transports import WIRES, Wire, ask, serve, wires

DISCOVERY = (
    tool_definitions.SEARCH_TOOLS,
    tool_definitions.BROWSE_TOOLS,
    tool_definitions.DESCRIBE_TOOLS,
    tool_definitions.READ_RESULT,
)
NORMAL = {"name": "text.count_text", "arguments": {"text": "a normal call"}}
NAMES = [
    "text.slugify",
    "text.count_text",
    "stdio.echo",
    "notes.search_notes",
    "units.convert_units",
]
SEEN: dict[str, list[str]] = {
    "server": ["units", "stdio", "text"],
    "category": ["math", "other"],
    "tags": ["math", "text"],
    "query": ["count the words in a text", "slugify", "echo"],
    "name": NAMES,
    "names": NAMES,
    "intent": ["count the words of the text 'a b c', then repeat them"],
    "path": ["items[*].a", "[?a > `1`].b | [0]", "length(@)", "keys(@)"],
    "grep": ["row 1.", "(row|line) [0-9]+", "x"],
}
SOUP = {
    "python": "await text.slugify(text='1') result ( ) [ ] { } : = lambda import "
    "for in def class x 1 "
    "'a' \\n \\t while True yield * ** @ f'{x}' try except raise load store "
    "search_tools del global print None",
    "lua": "text.slugify({text='1'}):await() result ( ) { } [[ ]] function end "
    "for in pairs do local x 1 "
    "'a' \\n while true goto :: string.rep coroutine.yield setmetatable error pcall "
    "load print nil # .. //",
    "javascript": "await text.slugify({text:'1'}) result ( ) { } [ ] => function "
    "class for of let x 1 'a' "
    "` ${ \\n while (1) yield ... ?. new Proxy Symbol throw try catch finally eval "
    "import print null /x/ async",
    "typescript": "interface A { } type B = string | as const x: number = 1 enum C { a } <T> => "
    "declare namespace "
    "await text.count_text({text:'a'}) result ( ) abstract class ! satisfies \\n "
    "private import = require print null",
}


@dataclass
class DemoGateway:
    """A gateway over the demo servers and one process, and every way into it."""

    running: Running
    runtime: GatewayRuntime
    wires: dict[str, Wire]
    seen: dict[str, list[str]] = field(default_factory=dict)
    """Texts that are right here: names, cursors, results."""

    def call(self, wire: str, name: str, arguments: Any) -> dict[str, Any] | None:
        """A meta-tool's result, or None where an error came back; nothing of it, or of the log, is
        our failure."""
        answer = ask(
            self.running, self.wires[wire], "tools/call", {"name": name, "arguments": arguments}
        )
        result = tool_result(answer)
        assert self.running.complaints.taken() == []
        return result

    def works(self, wire: str) -> None:
        result = self.call(wire, tool_definitions.CALL_TOOL, NORMAL)
        assert result is not None
        assert result["structuredContent"]["words"] == 3, result


@pytest.fixture(scope="module")
def gateway() -> Iterator[DemoGateway]:
    command, *more = broken_command("healthy")
    config = Config(
        servers={
            **demo.make_demo_servers(),
            "stdio": BackendConfig(command=command, args=tuple(more)),
        },
        code=CodeConfig(wall_s=5, cpu_s=1),
    )
    with running() as loop:

        async def opened() -> DemoGateway:
            gateway = await loop.holder.hold(gateway_over(config=config))
            return DemoGateway(
                loop, gateway, await wires(loop, gateway, await serve(loop, gateway))
            )

        gateway = loop.do(opened())
        gateway.seen = SEEN | seen_here(gateway)
        yield gateway


def seen_here(gateway: DemoGateway) -> dict[str, list[str]]:
    """A cursor of each kind and the id of a stored result, to be mangled."""
    rows = json.dumps([{"a": n, "b": f"row {n} " * 20} for n in range(2_000)])
    large = gateway.call(
        "pipes_legacy",
        tool_definitions.CALL_TOOL,
        {"name": "stdio.echo", "arguments": {"rows": rows}},
    )
    read = re.search(r"result_id[^\w-]+([\w-]{6,})", json.dumps(large))
    assert read, large
    part = gateway.call("pipes_legacy", tool_definitions.READ_RESULT, {"result_id": read[1]})
    found = gateway.call(
        "pipes_legacy", tool_definitions.SEARCH_TOOLS, {"query": "text", "limit": 1}
    )
    browsed = gateway.call(
        "pipes_legacy", tool_definitions.BROWSE_TOOLS, {"server": "text", "page_size": 1}
    )
    cursors = re.findall(r"cursor=\W*([\w-]{16,})", json.dumps([part, found, browsed]))
    assert len(cursors) == 3, (part, found, browsed)
    return {"cursor": cursors, "result_id": [read[1]]}


def draw_arguments(data: st.DataObject, gateway: DemoGateway, name: str) -> Any:
    return data.draw(noise.arguments(tool_definitions.PARAMETERS[name], gateway.seen), label=name)


@pytest.mark.parametrize("name", DISCOVERY)
@examples(70)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_what_finds_and_reads_answers_whatever_it_is_passed(
    gateway: DemoGateway, name: str, data: st.DataObject, wire: str
) -> None:
    gateway.call(wire, name, draw_arguments(data, gateway, name))
    gateway.works(wire)


@examples(80)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_call_tool_answers_whatever_it_is_passed(
    gateway: DemoGateway, data: st.DataObject, wire: str
) -> None:
    gateway.call(
        wire, tool_definitions.CALL_TOOL, draw_arguments(data, gateway, tool_definitions.CALL_TOOL)
    )
    gateway.works(wire)


@examples(150)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_every_tool_answers_arguments_that_nearly_fit_it(
    gateway: DemoGateway, data: st.DataObject, wire: str
) -> None:
    tools = gateway.runtime.get_view().snapshot.tools
    tool = tools[data.draw(st.sampled_from(sorted(tools)), label="tool")]
    schema = {"properties": {"any": {}}, **tool.input_schema}
    arguments = data.draw(
        noise.arguments(schema, gateway.seen) if schema["properties"] else noise.OBJECTS,
        label="given",
    )
    view = data.draw(st.sampled_from(["result", "shape"]), label="view")
    gateway.call(
        wire,
        tool_definitions.CALL_TOOL,
        {"name": tool.address, "arguments": arguments, "view": view},
    )
    gateway.works(wire)


@pytest.mark.parametrize("language", LANGUAGES)
@examples(10)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_a_script_of_noise_ends_and_says_why(
    gateway: DemoGateway, language: str, data: st.DataObject, wire: str
) -> None:
    words = [word.encode().decode("unicode_escape") for word in SOUP[language].split(" ")]
    soup = st.lists(st.sampled_from(words), max_size=25).map(" ".join)
    code = data.draw(st.one_of(soup, soup, noise.TEXT, st.just("x = " + "[" * 5_000)), label="code")
    gateway.call(wire, tool_definitions.RUN_CODE, {"code": code, "language": language})
    gateway.works(wire)


@examples(25)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_run_code_answers_whatever_it_is_passed(
    gateway: DemoGateway, data: st.DataObject, wire: str
) -> None:
    gateway.call(
        wire, tool_definitions.RUN_CODE, draw_arguments(data, gateway, tool_definitions.RUN_CODE)
    )
    gateway.works(wire)


REFERENCES = st.sampled_from(
    [
        "${a}",
        "${b.content[0].text}",
        "${inputs.x}",
        "${a",
        "${}",
        "${a.}",
        "${zzz}",
        "${a[*].b | sort(@)}",
        "$${a} ${b}",
    ]
)
IDS = st.one_of(st.sampled_from(["a", "b", "inputs", "", "a.b", "A"]), noise.TEXT, noise.VALUES)
STEP = st.fixed_dictionaries(
    {},
    optional={
        "id": IDS,
        "tool": st.sampled_from([*NAMES, "evaluate", "nobody.nothing"]) | noise.VALUES,
        "arguments": st.one_of(
            st.dictionaries(
                st.sampled_from(["expression", "text", "rows"]),
                REFERENCES | noise.VALUES,
                max_size=2,
            ),
            REFERENCES,
            noise.VALUES,
        ),
        "depends_on": st.one_of(st.lists(IDS, max_size=3), noise.VALUES),
        "if": st.one_of(REFERENCES, noise.VALUES),
        "for_each": st.one_of(REFERENCES, st.lists(noise.SCALARS, max_size=3), noise.VALUES),
        "retry": st.one_of(st.integers(-1, 2), noise.VALUES),
        "on_error": noise.VALUES,
    },
)


@examples(80)
@given(
    steps=st.one_of(
        st.lists(STEP, min_size=1, max_size=5),
        st.lists(st.just({"id": "a", "tool": "a"}), max_size=60),
    ),
    inputs=st.one_of(st.just({"x": 1}), noise.OBJECTS),
    wire=st.sampled_from(WIRES),
)
def test_a_workflow_of_noise_ends_and_says_why(
    gateway: DemoGateway, steps: Any, inputs: Any, wire: str
) -> None:
    gateway.call(wire, tool_definitions.RUN_WORKFLOW, {"steps": steps, "inputs": inputs})
    gateway.works(wire)


@examples(60)
@given(data=st.data(), wire=st.sampled_from(WIRES))
def test_run_workflow_answers_whatever_it_is_passed(
    gateway: DemoGateway, data: st.DataObject, wire: str
) -> None:
    gateway.call(
        wire,
        tool_definitions.RUN_WORKFLOW,
        draw_arguments(data, gateway, tool_definitions.RUN_WORKFLOW),
    )
    gateway.works(wire)


@examples(60)
@given(
    name=st.one_of(
        st.sampled_from([*tool_definitions.META_TOOL_NAMES, "text__slugify"]), noise.VALUES
    ),
    arguments=noise.VALUES,
    wire=st.sampled_from([wire for wire in WIRES if not wire.startswith("typed")]),
)
def test_a_call_of_anything_with_anything_is_answered(
    gateway: DemoGateway, name: Any, arguments: Any, wire: str
) -> None:
    if (
        isinstance(name, str)
        and not (name.isascii() and name.isprintable())
        and wire == "http_modern"
    ):
        wire = "pipes_modern"  # the name goes into a header too, where it cannot be
    tool_result(
        ask(
            gateway.running,
            gateway.wires[wire],
            "tools/call",
            {"name": name, "arguments": arguments},
        )
    )
    assert gateway.running.complaints.taken() == []
    gateway.works(wire)
