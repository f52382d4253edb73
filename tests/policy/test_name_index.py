"""The index leaves out no rule that concerns a name."""

from fnmatch import fnmatchcase

from hypothesis import given, settings
from hypothesis import strategies as st

from portico.callers import Caller
from portico.calls.rule_enforcement import build_rules
from portico.config import Config
from portico.policy.name_index import NameIndex, find_hints
from portico.policy.patterns import AddressPattern
from portico.policy.target import Target

LETTERS = st.sampled_from("abAB.*?[]-_ıİſKß")
GLOBS = st.text(LETTERS, min_size=1, max_size=6)
NAMES = st.text(st.sampled_from("abABik.-_ıİſKßs]["), min_size=1, max_size=6)


@settings(max_examples=600, deadline=None)
@given(GLOBS, NAMES, st.sampled_from(["a", "b", "ab"]), st.booleans())
def test_what_a_glob_matches_the_index_lets_through(
    glob: str, name: str, server: str, is_restrictive: bool
) -> None:
    pattern = AddressPattern(glob, is_restrictive=is_restrictive)
    hints = find_hints([pattern])
    if hints is not None and pattern.matches(Target("tool", server, name)):
        assert NameIndex([hints]).may_match(name)


RULES = st.lists(
    st.tuples(GLOBS, st.sampled_from([(), ("a",), ("a*",), ("b", "ab")]), st.booleans()),
    max_size=6,
)


@settings(max_examples=300, deadline=None)
@given(RULES, st.text(st.sampled_from("ab._"), min_size=1, max_size=4), st.sampled_from("ab"))
def test_the_first_rule_that_matches_decides_as_if_each_were_compared(
    rules: list[tuple[str, tuple[str, ...], bool]], name: str, server: str
) -> None:
    config = Config.model_validate(
        {
            "rules": [
                {"tools": [glob], "servers": list(servers), "may": "deny" if denies else "allow"}
                for glob, servers, denies in rules
            ]
        }
    )
    own = build_rules(config).select_for(Caller())
    decision = own.decide(Target("tool", server, name), {})
    expected = next(
        (
            f"rules[{number}]"
            for number, (glob, servers, denies) in enumerate(rules)
            if (not servers or any(fnmatchcase(server, one) for one in servers))
            and _matches(glob, server, name, denies=denies)
        ),
        "default",
    )
    assert decision.rule == expected


def _matches(glob: str, server: str, name: str, *, denies: bool) -> bool:
    text = f"{server}.{name}" if "." in glob else name
    if glob in ("*", "*.*"):
        return True
    if denies:
        return AddressPattern(glob, is_restrictive=True).matches(Target("tool", server, name))
    return fnmatchcase(text, glob)
