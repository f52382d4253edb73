"""The root of the configuration: profiles, names and learning."""

from typing import Any

import pytest
from pydantic import ValidationError

from portico.config import (
    MAX_SERVER_NAME_LENGTH,
    META_TOOLS,
    BackendConfig,
    Budgets,
    Config,
    LearningConfig,
    Profile,
    ProfileBudgets,
)
from portico.errors import UnknownName


def test_without_a_profile_the_view_is_the_gateways_own():
    view = Config(metatools={"browse_tools": False}).resolve_profile()
    assert (view.exposure, view.discovery_budget) == ("meta", 2000)
    assert view.meta_tools == set(META_TOOLS) - {"browse_tools"}
    assert (view.servers, view.tools) == (("*",), ("*",))


def test_a_profile_inherits_what_it_does_not_say():
    config = Config(
        exposure="full",
        budgets=Budgets(discovery=1000),
        metatools={"browse_tools": False, "call_tool": False},
        profiles={
            "work": Profile(
                servers=("git*",),
                tools=("*.read_*",),
                budgets=ProfileBudgets(discovery=900),
                metatools={"call_tool": True},
            )
        },
    )
    view = config.resolve_profile("work")
    assert (view.exposure, view.discovery_budget) == ("full", 900)
    assert view.meta_tools == set(META_TOOLS) - {"browse_tools"}


def test_an_unknown_profile_gets_the_known_ones_back():
    with pytest.raises(UnknownName, match="no profile 'wrok'") as caught:
        Config(profiles={"work": Profile()}).resolve_profile("wrok")
    assert "work" in caught.value.nearest


@pytest.mark.parametrize(
    "name", ["portico", "my.server", "", "a b", "x" * (MAX_SERVER_NAME_LENGTH + 1)]
)
def test_a_server_name_that_could_not_be_addressed_is_refused(name: str):
    with pytest.raises(ValidationError):
        Config(servers={name: BackendConfig(command="x")})


@pytest.mark.parametrize(
    ("written", "scope"),
    [
        ("off", "off"),
        (False, "off"),
        (True, "caller"),
        ("shared", "shared"),
        ({"scope": False}, "off"),
        ({}, "caller"),
    ],
)
def test_learning_is_a_word_or_a_section(written: Any, scope: str):
    assert Config.model_validate({"learning": written}).learning == LearningConfig.model_validate(
        {"scope": scope}
    )


@pytest.mark.parametrize(
    "written", ["everybody", {"half_life_days": 0}, {"max_followed": 0}, {"max_together": -1}]
)
def test_learning_has_bounds(written: Any):
    with pytest.raises(ValidationError):
        Config.model_validate({"learning": written})
