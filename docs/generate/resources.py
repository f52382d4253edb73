"""Our resources, templates and prompts, read off what clients are listed."""

from collections.abc import Iterator, Mapping
from typing import Any

from docs.generate.markdown import code, joined, table
from portico.profiles.prompts import PROMPTS
from portico.profiles.resources import DEFAULT_BUDGET, RESOURCE_BUDGETS, RESOURCES, TEMPLATES


def page() -> str:
    """A heading for each of them."""
    return joined(
        [
            "## Resources",
            *(part for one in RESOURCES for part in _resource(one, one["uri"])),
            "## Templates",
            *(part for one in TEMPLATES for part in _resource(one, one["uriTemplate"])),
            "## Prompts",
            *(part for one in PROMPTS for part in _prompt(one)),
        ]
    )


def _resource(one: Mapping[str, Any], uri: str) -> Iterator[str]:
    yield f"### `{uri}`"
    yield one["description"]
    facts = [one.get("mimeType", "of the type that its server or tool gave it")]
    if one.get("mimeType") == "application/json":
        facts.append(
            f"at most {RESOURCE_BUDGETS.get(one['name'].replace('_', ' '), DEFAULT_BUDGET):,} tokens at once"
        )
    if "annotations" in one:
        facts.append(f"priority {one['annotations']['priority']}")
        facts.append(f"for {' and '.join(one['annotations']['audience'])}")
    yield " · ".join(facts)


def _prompt(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"### `{one['name']}`"
    yield one["description"]
    rows = (
        (
            code(argument["name"]),
            "required" if argument.get("required") else "",
            argument["description"],
        )
        for argument in one.get("arguments", ())
    )
    yield table(("argument", "", "meaning"), rows)
