"""Overrides in the life of a gateway: secrets, changed servers, pins, live changes, the doctor."""

import json
from pathlib import Path
from typing import Any

import pytest

from portico.catalog.pinning import collect_items
from portico.config import Config
from portico.config_file import load, mask_config
from portico.config_file.secret_values import collect_secret_values
from portico.errors import ConfigError
from portico.upstream.backend import Raw
from tests.cli.conftest import Home, home
from tests.gateways import open_gateway, wait_until
from tests.overrides.desk import LISTED, TOOLS, get_sent, make_config, make_desk

__all__ = ["home"]

BUG = "desk.report_bug"
SECRET = "kestrel-9-orchard"


# --- the configuration


def load_tools(folder: Path, tools: str, **environ: str) -> Config:
    path = folder / "portico.yaml"
    path.write_text(f"servers:\n  desk:\n    command: x\n    tools:\n{tools}")
    return load([path], environ=environ, cwd=folder).config


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (
            "        t: {parameters: {a: {name: c}, b: {name: c}}}",
            ["would both be named 'c'", "override.t.parameters"],
        ),
        (
            "        t: {parameters: {a: {name: b}, b: {default: 1}}}",
            ["'a' would be named 'b', the name of another parameter"],
        ),
        (
            "        t: {parameters: {a: {fixed: 1, name: b, default: 2}}}",
            ["what is `fixed`", "name and default", "override.t.parameters.a"],
        ),
        ("        t: {parameters: {a: {default: '${file:k}'}}}", ["a secret may stand in"]),
        ("        t: {read_only: true}", ["override.t.read_only"]),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(
    tmp_path: Path, lines: str, words: list[str]
) -> None:
    try:
        config = load_tools(tmp_path, f"      override:\n{lines}\n")
    except ConfigError as error:
        text = str(error)
        assert "portico.yaml" in text
    else:
        text = config.servers["desk"].problem or ""
    for word in words:
        assert word in text, text


def test_values_keep_their_types_whatever_the_names(tmp_path: Path) -> None:
    config = load_tools(
        tmp_path,
        "      override:\n"
        "        title: {title: 5, parameters: {url: {fixed: 7}, env: {default: {title: 1}}}}\n",
    )
    override = config.servers["desk"].tools.override["title"]
    assert override.title == "5"
    assert override.parameters["url"].fixed == 7
    assert override.parameters["env"].default == {"title": 1}


def test_the_first_pattern_that_gives_a_setting_counts() -> None:
    rules = make_config(
        {
            "override": {
                "a*": {"title": "1", "parameters": {"p": {"default": 1}}},
                "*": {"title": "2", "description": "3", "parameters": {"p": {"fixed": 2}}},
            }
        }
    )
    found = rules.servers["desk"].tools.find_override("ab")
    assert found is not None
    assert (found.title, found.description) == ("1", "3")
    assert found.parameters["p"].has_default
    assert not found.parameters["p"].is_fixed


# --- secrets


@pytest.mark.parametrize("reference", ["${file:key.txt}", "${env:DESK_KEY}"])
async def test_a_secret_is_sent_and_masked_everywhere(tmp_path: Path, reference: str) -> None:
    key_file = tmp_path / "key.txt"
    key_file.write_text(SECRET)
    key_file.chmod(0o600)
    override = {"*_issue*": {"parameters": {"owner": {"fixed": reference}}}}
    config = load_tools(tmp_path, f"      override: {json.dumps(override)}\n", DESK_KEY=SECRET)
    assert config.servers["desk"].problem is None
    shown = json.dumps(mask_config(config))
    assert reference in shown
    assert SECRET not in shown
    config = config.model_copy(
        update={"audit": config.audit.model_copy(update={"arguments": "redacted"})}
    )
    backend = make_desk()
    async with open_gateway({"desk": backend}, config, data_dir=tmp_path / "data") as gateway:
        text = await gateway.call_text(
            "call_tool", name="desk.list_issues", arguments={"repo": "r"}
        )
        assert get_sent(backend)[0]["arguments"] == {"owner": SECRET, "repo": "r"}
        assert "***" in text

        def fail(arguments: Raw) -> Raw:
            words = f"no access for {arguments['owner']}"
            return {"isError": True, "content": [{"type": "text", "text": words}]}

        backend.on_call("list_issues", fail)
        error = await gateway.call_error(
            "call_tool", name="desk.list_issues", arguments={"repo": "r"}
        )
        assert "no access for ***" in error
        full = await gateway.call_text("describe_tools", names=["desk.list_issues"], detail="full")
        answers = json.dumps([text, error, full])
        logged = (tmp_path / "data" / "audit.jsonl").read_text()
        assert SECRET not in answers + logged
        assert SECRET in collect_secret_values(gateway.runtime.config)


async def test_a_secret_that_cannot_be_read_fails_the_call_alone(tmp_path: Path) -> None:
    override = {"list_issues": {"parameters": {"owner": {"fixed": "${file:gone.txt}"}}}}
    config = load_tools(tmp_path, f"      override: {json.dumps(override)}\n")
    backend = make_desk()
    async with open_gateway({"desk": backend}, config) as gateway:
        error = await gateway.call_error(
            "call_tool", name="desk.list_issues", arguments={"repo": "r"}
        )
        assert "cannot be read" in error
        assert not get_sent(backend)
        await gateway.call_text("call_tool", name="desk.ping")


# --- servers that change, pins, live changes


def change_issue(**schema: Any) -> list[Raw]:
    created = LISTED[0]
    return [{**created, "inputSchema": {**created["inputSchema"], **schema}}, *LISTED[1:]]


async def test_a_parameter_that_is_gone_is_said_and_the_server_goes_on() -> None:
    backend = make_desk()
    async with open_gateway({"desk": backend}, make_config()) as gateway:
        catalog = gateway.runtime.catalog
        entry = catalog.snapshot.servers["desk"]
        assert entry.override_problems == ()
        properties = dict(LISTED[0]["inputSchema"]["properties"])
        del properties["priority"]
        backend.change(change_issue(properties=properties))
        await wait_until(lambda: bool(catalog.snapshot.servers["desk"].override_problems))
        (problem,) = catalog.snapshot.servers["desk"].override_problems
        assert problem == "tools.override.create_issue: the tool has no parameter 'priority'"
        arguments = {"summary": "x"}
        await gateway.call_text("call_tool", name=BUG, arguments=arguments)
        assert get_sent(backend)[-1]["arguments"] == {
            "owner": "acme",
            "repo": "portico",
            "title": "x",
        }


async def test_a_fixed_value_that_no_longer_fits_refuses_calls_and_stays_hidden() -> None:
    backend = make_desk()
    async with open_gateway({"desk": backend}, make_config()) as gateway:
        catalog = gateway.runtime.catalog
        properties = {**LISTED[0]["inputSchema"]["properties"], "owner": {"enum": ["other"]}}
        backend.change(change_issue(properties=properties))
        await wait_until(lambda: bool(catalog.snapshot.servers["desk"].override_problems))
        error = await gateway.call_error("call_tool", name=BUG, arguments={"summary": "x"})
        assert "with what this gateway adds" in error
        assert "owner" not in error
        assert not get_sent(backend)


async def test_pins_and_the_scan_look_at_what_the_server_says() -> None:
    backend = make_desk(trust="first")
    async with open_gateway({"desk": backend}, make_config()) as gateway:
        catalog = gateway.runtime.catalog
        entry = catalog.snapshot.servers["desk"]
        pinned = json.loads(collect_items(entry)["tool", "create_issue"])
        assert pinned == LISTED[0]
        await gateway.runtime.apply(make_config({}))
        assert not catalog.snapshot.servers["desk"].changes
        await gateway.runtime.apply(make_config())
        properties = {**LISTED[0]["inputSchema"]["properties"], "note": {"description": "New."}}
        backend.change(change_issue(properties=properties))
        await wait_until(lambda: bool(catalog.snapshot.servers["desk"].changes))
        tool = catalog.snapshot.tools[BUG]
        assert tool.held
        # What is held back says so, whatever the configuration says of it.
        assert tool.description.startswith("[Held back")
        assert "owner" not in tool.input_schema["properties"]
        assert "is held back" in await gateway.call_error(
            "call_tool", name=BUG, arguments={"summary": "x"}
        )


async def test_a_changed_override_is_applied_at_once_and_the_list_announced() -> None:
    backend = make_desk()
    announced: list[Any] = []

    async def hear(message: Any) -> None:
        announced.append(message)

    config = make_config(exposure="full")
    async with open_gateway(
        {"desk": backend}, config, era="legacy", message_handler=hear
    ) as gateway:
        await gateway.client.list_tools()
        connections = backend.connections
        override = {**TOOLS["override"], "ping": {"description": "Says that it is there."}}
        await gateway.runtime.apply(make_config({**TOOLS, "override": override}, exposure="full"))
        await wait_until(lambda: any("ToolListChanged" in type(one).__name__ for one in announced))
        listed = {one.name: one for one in (await gateway.client.list_tools()).tools}
        assert listed["desk__ping"].description == "Says that it is there."
        assert backend.connections == connections


async def test_another_fixed_value_is_another_tool_for_results_that_are_kept() -> None:
    backend = make_desk()
    tools = {"override": {"list_issues": {"parameters": {"owner": {"fixed": "acme"}}}}}
    other = {"override": {"list_issues": {"parameters": {"owner": {"fixed": "other"}}}}}
    async with open_gateway({"desk": backend}, make_config(tools)) as gateway:
        before = gateway.runtime.catalog.snapshot.tools["desk.list_issues"]
        await gateway.runtime.apply(make_config(other))
        after = gateway.runtime.catalog.snapshot.tools["desk.list_issues"]
        assert before.blob == after.blob
        assert before.hash != after.hash
        arguments = {"repo": "r"}
        await gateway.call_text("call_tool", name="desk.list_issues", arguments=arguments)
        assert get_sent(backend)[-1]["arguments"]["owner"] == "other"


async def test_a_tool_that_is_not_listed_cannot_go_around_the_overrides() -> None:
    backend = make_desk()
    backend.on_call("create_issue_2", lambda _: {"content": []})
    config = make_config(exposure="full", prefix="never")
    async with open_gateway({"desk": backend}, config) as gateway:
        with pytest.raises(Exception, match="create_issue_2"):
            await gateway.call("create_issue_2", owner="eve")
        assert not get_sent(backend)


# --- the commands


FUNCTIONS = {"functions": "tests.overrides.desk:FUNCTIONS"}


def test_the_doctor_names_what_does_not_fit_and_what_matches_nothing(home: Home) -> None:
    override = {
        "create_isue": {"title": "x"},
        "create_issue": {"parameters": {"gone": {"fixed": 1}, "priority": {"default": 5}}},
    }
    home.write({"servers": {"desk": {**FUNCTIONS, "tools": {"override": override}}}})
    report = home.run("doctor", "--json")
    found = {(one["id"], one["message"]) for one in report.data["findings"]}
    expected = {
        ("rules.match_nothing", "tools.override: 'create_isue' matches none of its tools"),
        (
            "rules.override_misfit",
            "tools.override.create_issue: the tool has no parameter 'gone'",
        ),
        (
            "rules.override_misfit",
            "tools.override of 'create_issue', parameter 'priority': the default does not fit the"
            " server's schema",
        ),
    }
    assert expected <= found, report.out
    status = home.run("status", "--json")
    (server,) = status.data["servers"]
    assert len(server["warnings"]) == 2


def test_names_are_completed_as_they_are_called(home: Home) -> None:
    home.write({"servers": {"desk": {**FUNCTIONS, "tools": TOOLS}}})
    assert home.run("describe", BUG).code == 0
    assert home.spawn("complete", "tools").out.split() == [BUG]
