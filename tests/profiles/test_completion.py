"""Completion of our own templates' arguments: what begins so first, then what contains it, else
what is spelt alike."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from portico.errors import INVALID_PARAMS, RemoteError
from portico.profiles.prompts import MAX_VALUES, complete_argument, find_matches
from portico.profiles.resources import TEMPLATES
from portico.testing import FakeBackend
from portico.upstream.backend import Raw
from tests.interaction.fake_servers import tool
from tests.profiles.viewing import Viewing, viewing

TOOL = "portico://tool/{tool_name}"


async def completed(view: Viewing, uri: str, name: str, value: str, **given: str) -> Raw:
    params: Raw = {
        "ref": {"type": "ref/resource", "uri": uri},
        "argument": {"name": name, "value": value},
    }
    if given:
        params["context"] = {"arguments": given}
    return (await view.ask("completion/complete", params))["completion"]


async def test_names_that_begin_so_come_before_those_that_contain_it():
    names = ["post.mail_issue", "issues.list", "github.issue_close", "github.create_issue"]
    assert find_matches("issue", names) == [
        "issues.list",
        "github.issue_close",
        "post.mail_issue",
        "github.create_issue",
    ]


async def test_a_misspelt_name_gets_those_that_are_spelt_alike():
    assert find_matches("githb", ["github", "gitlab", "weather"])[0] == "github"
    assert find_matches("zzzzqqqq", ["github", "weather"]) == []


@given(st.text(max_size=20), st.lists(st.text(max_size=20), max_size=30, unique=True))
def test_whatever_is_typed_each_value_is_one_of_the_names_and_comes_once(
    typed: str, names: list[str]
):
    found = find_matches(typed, names)
    assert len(found) == len(set(found))
    assert set(found) <= set(names)


@pytest.mark.parametrize(
    ("uri", "name", "value", "values"),
    [
        (TOOL, "tool_name", "github.c", ["github.create_issue", "github.close_issue"]),
        (TOOL, "tool_name", "SEND", ["post.send_mail"]),
        ("portico://backend/{backend_name}", "backend_name", "gi", ["github"]),
        ("portico://backend/{backend_name}/tools", "backend_name", "", ["bare", "github", "post"]),
        ("portico://category/{category}", "category", "version", ["version-control"]),
        ("portico://backend/{backend_name}/resource/{+uri}", "backend_name", "p", ["post"]),
    ],
)
async def test_every_argument_of_ours_is_completed(
    uri: str, name: str, value: str, values: list[str]
):
    async with viewing() as view:
        expected = {"values": values, "total": len(values), "hasMore": False}
        assert await completed(view, uri, name, value) == expected


async def test_what_was_filled_in_before_narrows_what_may_follow():
    async with viewing() as view:
        narrowed = await completed(view, TOOL, "tool_name", "", backend_name="post")
        assert narrowed["values"] == ["post.send_mail", "post.odd/name here"]
        uri = "portico://backend/{backend_name}/resource/{+uri}"
        assert (await completed(view, uri, "uri", "", backend_name="github"))["values"] == [
            "note://1"
        ]
        assert (await completed(view, uri, "uri", ""))["values"] == []
        everything = await completed(view, TOOL, "tool_name", "", backend_name="nobody")
        assert everything["total"] == 4


async def test_a_hundred_values_at_most_and_the_true_total():
    async with viewing({"many": FakeBackend([tool(f"t{n}") for n in range(250)])}) as view:
        answer = await completed(view, TOOL, "tool_name", "many.")
        assert (len(answer["values"]), answer["total"], answer["hasMore"]) == (
            MAX_VALUES,
            250,
            True,
        )


async def test_used_tools_are_proposed_first():
    async with viewing() as view:
        await view.use("post.send_mail")
        assert (await completed(view, TOOL, "tool_name", ""))["values"][0] == "post.send_mail"


async def test_a_task_is_anybodys_guess():
    async with viewing() as view:
        params = {
            "ref": {"type": "ref/prompt", "name": "find_tool"},
            "argument": {"name": "task", "value": "s"},
        }
        answer = await view.ask("completion/complete", params)
        assert answer == {"completion": {"values": [], "total": 0, "hasMore": False}}


async def test_an_argument_that_a_template_does_not_have_is_refused():
    async with viewing() as view:
        with pytest.raises(RemoteError, match="has no argument 'colour'") as caught:
            await completed(view, TOOL, "colour", "")
        assert caught.value.code == INVALID_PARAMS


@pytest.mark.parametrize("template", [template["uriTemplate"] for template in TEMPLATES])
async def test_every_argument_of_every_template_has_candidates(template: str):
    async with viewing() as view:
        for name in ("tool_name", "backend_name", "category", "uri"):
            if f"{name}}}" in template:
                argument: Any = {"name": name, "value": ""}
                assert complete_argument(
                    view.view.profile_state.ranked_catalog,
                    {"ref": {"type": "ref/resource", "uri": template}, "argument": argument},
                )


async def test_others_are_left_to_their_servers():
    async with viewing() as view:
        for reference in (
            {"type": "ref/prompt", "name": "github__greet"},
            {"type": "ref/resource", "uri": "note://{id}"},
        ):
            assert (
                complete_argument(
                    view.view.profile_state.ranked_catalog,
                    {"ref": reference, "argument": {"name": "x", "value": ""}},
                )
                is None
            )
