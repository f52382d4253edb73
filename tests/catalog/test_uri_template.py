"""Which URIs a template matches, within bounded work."""

import pytest

from portico.catalog import uri_template


def test_templates_that_would_cost_much_to_match_are_not_matched() -> None:
    backtracking = "x://" + "{+a}b" * 15 + "c"
    templates = uri_template.parse_templates([backtracking] * 50_000)
    assert len(templates) == uri_template.MAX_TEMPLATES
    assert not uri_template.matches_any(templates, "x://" + "ab" * 2_000)
    assert not uri_template.matches_any(templates[:1], "x://" + "b" * 5_000 + "c")
    assert uri_template.parse_templates(["{a}" * 100, "x" * 5_000]) == ()
    assert uri_template.matches_any(templates, "x://" + "ab" * 15 + "c")


@pytest.mark.parametrize(
    ("template", "fits", "fits_not"),
    [
        ("a://{x}/b", ["a://1/b", "a://%2F/b"], ["a://1/2/b", "a://1/bc", "a://1"]),
        ("a://{+x}/b{y}", ["a://1/2/b3", "a://p/b/bq"], ["a://1/c"]),
        ("a://{x*}", ["a://1/2/3"], ["b://1"]),
        ("a://l{?q,r}", ["a://l", "a://l?q=1&r=/2"], ["a://m?q=1"]),
        ("a://l{/x}{#y}", ["a://l/1/2#z"], ["a:/l"]),
        ("a://{x", ["a://{x"], ["a://1"]),
    ],
)
def test_a_template_stands_for_the_addresses_that_it_can_become(
    template: str, fits: list[str], fits_not: list[str]
) -> None:
    parsed = uri_template.parse_templates([template])
    assert [uri for uri in [*fits, *fits_not] if uri_template.matches_any(parsed, uri)] == fits
