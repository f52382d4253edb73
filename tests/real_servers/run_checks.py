"""Checks of a run, as sentences about what is wrong. Pure."""

from __future__ import annotations

from typing import cast

from tests.real_servers.catalogue import Raw, Server
from tests.real_servers.comparison import differences, without_envelope
from tests.real_servers.runs import Run

LIST_KINDS = ("tools", "resources", "resourceTemplates", "prompts")
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_OWED = ({"priority": 0.7}, {"audience": ["assistant"], "priority": 0.3})
"""Annotations of short and of long blocks."""


def of_direct(server: Server, run: Run) -> list[str]:
    """Return where a server is not what the table says it is: then nothing that follows would mean
    much."""
    version = run.hello.get("protocolVersion") or next(
        iter(run.hello.get("supportedVersions", ())), None
    )
    wrong: list[str] = []
    if version != server.protocol:
        wrong.append(f"speaks {version}, the table says {server.protocol}")
    if len(run.lists["tools"]) != server.tools:
        wrong.append(f"has {len(run.lists['tools'])} tools, the table says {server.tools}")
    if server.noisy != bool(run.noise):
        wrong.append(f"printed {run.noise} lines that are not JSON-RPC")
    answers = [
        run.answers[number] for number, question in enumerate(server.questions) if question.tool
    ]
    if not any("result" in answer and not answer["result"].get("isError") for answer in answers):
        wrong.append("answered no call with success")
    return wrong


def of_full(server: Server, direct: Run, full: Run) -> list[str]:
    """Exposure `full` with a client of the same era: equal to the last field."""
    return _lists(direct, full) + _answers(server, direct, full)


def of_transparent(server: Server, direct: Run, transparent: Run) -> list[str]:
    """A transparent gateway with a client of the other era: equal but for the era's envelope."""
    first, second = _introduction(direct.hello), _introduction(transparent.hello)
    return (
        differences(first, second, "introduction")
        + _lists(direct, transparent)
        + _answers(server, direct, transparent, across_eras=True)
    )


def of_meta(server: Server, direct: Run, meta: Run) -> list[str]:
    """The meta-tools: each called tool is found by its own description, described whole, and
    answers the same."""
    wrong: list[str] = []
    for tool, answer in meta.found.items():
        if f"{server.name}.{tool}(" not in answer:
            wrong.append(f"a search for the description of {tool} does not find it: {answer[:500]}")
    for tool, described in meta.described.items():
        definition = {
            k: v for k, v in direct.lists["tools"][tool].items() if k not in ("name", "description")
        }
        reported = {key: described[key] for key in definition if key in described}
        wrong += differences(definition, reported, f"describe_tools({tool})")
    return wrong + _answers(server, direct, meta, annotated=True)


def _lists(direct: Run, other: Run) -> list[str]:
    return [
        d for kind in LIST_KINDS for d in differences(direct.lists[kind], other.lists[kind], kind)
    ]


def _answers(
    server: Server, direct: Run, other: Run, *, across_eras: bool = False, annotated: bool = False
) -> list[str]:
    wrong: list[str] = []
    for number, answer in other.answers.items():
        question = server.questions[number]
        expected = direct.answers[number]
        if across_eras:
            expected, answer = without_envelope(expected), without_envelope(answer)
        answer = _unfold_error(answer)
        if annotated:
            expected = annotate_blocks(expected, answer)
        name = question.params.get("name") or question.params.get("uri") or question.params["ref"]
        wrong += differences(expected, answer, f"{question.method} {name}")
    return wrong


def _unfold_error(answer: Raw) -> Raw:
    """A server's error as it sent it; `call_tool` tells it to models as a result, and to programs
    in its `_meta`."""
    reported = answer.get("result", {}).get("_meta", {}).get("portico/error", {})
    if reported.get("kind") != "remote":
        return answer
    return {"error": {key: reported[key] for key in ("code", "message", "data") if key in reported}}


def annotate_blocks(expected: Raw, answer: Raw) -> Raw:
    """A server's result with the annotations that `call_tool` owes to blocks that have none: a
    priority, and for whom it is where the gateway says so."""
    blocks = expected.get("result", {}).get("content")
    answered = answer.get("result", {}).get("content")
    if not isinstance(blocks, list) or not isinstance(answered, list):
        return expected
    annotated = list(cast("list[Raw]", blocks))
    for number, block in enumerate(annotated[: len(cast("list[Raw]", answered))]):
        owed = cast("list[Raw]", answered)[number].get("annotations")
        if "annotations" not in block:
            annotated[number] = {**block, "annotations": owed if owed in _OWED else _OWED[0]}
    return {**expected, "result": {**expected["result"], "content": annotated}}


def _introduction(hello: Raw) -> Raw:
    info = hello.get("serverInfo") or hello.get("_meta", {}).get(SERVER_INFO)
    return {"serverInfo": info, "instructions": hello.get("instructions")}
