"""The page of resources, templates and prompts, from what clients are listed."""

from collections.abc import Iterator, Mapping
from typing import Any

from docs.generate.markdown import code, join_paragraphs, table
from portico.profiles.prompts import PROMPTS
from portico.profiles.resources import DEFAULT_BUDGET, RESOURCE_BUDGETS, RESOURCES, TEMPLATES


def page() -> str:
    """Render a heading for each resource, template and prompt."""
    return join_paragraphs(
        [
            "## Resources",
            *(part for item in RESOURCES for part in _resource(item, item["uri"])),
            "## Templates",
            *(part for item in TEMPLATES for part in _resource(item, item["uriTemplate"])),
            "## Prompts",
            *(part for item in PROMPTS for part in _prompt(item)),
        ]
    )


def _resource(one: Mapping[str, Any], uri: str) -> Iterator[str]:
    yield f"### `{uri}`"
    yield one["description"]
    facts = [one.get("mimeType", "of the type that its server or tool gave it")]
    if one.get("mimeType") == "application/json":
        budget = RESOURCE_BUDGETS.get(one["name"].replace("_", " "), DEFAULT_BUDGET)
        facts.append(f"at most {budget:,} tokens at once")
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
