"""Tool names: addresses, identifiers, flat names and lenient resolution."""

import keyword
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from portico.catalog.address import (
    FLAT_NAME_CHARS,
    MAX_NAME_CHARS,
    RESERVED_WORDS,
    AddressResolver,
    assign_flat_names,
    assign_identifiers,
    find_nearest_names,
    make_flat_name,
    split_name,
    to_identifier,
)
from portico.errors import UnknownName

ADDRESSES = (
    "github.create_issue",
    "github.list_issues",
    "gitlab.create_issue",
    "data-server.list-items",
    "data-server.get.item",
    "files.readTextFile",
    "123numbers.while",
    "web.search",
    "docs.search",
    "under__score.deep__tool",
)


def resolver(*more: str) -> AddressResolver:
    return AddressResolver(dict.fromkeys((*ADDRESSES, *more)))


def refusal(name: str, of: AddressResolver | None = None) -> UnknownName:
    with pytest.raises(UnknownName) as caught:
        (of or resolver()).resolve(name)
    return caught.value


# Identifiers


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("data-server", "data_server"),
        ("123numbers", "_123numbers"),
        ("while", "_while"),
        ("end", "_end"),
        ("typeof", "_typeof"),
        ("match", "_match"),
        ("", "__"),
        ("créer", "cr_er"),
        ("create_issue", "create_issue"),
    ],
)
def test_a_name_becomes_a_legal_identifier(name: str, word: str):
    assert to_identifier(name) == word


def test_names_that_would_become_the_same_identifier_keep_apart_and_a_legal_name_keeps_its_own():
    words = assign_identifiers(["get-user", "get_user", "get.user"])
    assert sorted(words.values()) == ["get-user", "get.user", "get_user"]
    assert words["get_user"] == "get_user"
    assert words == assign_identifiers(["get.user", "get_user", "get-user", "get_user"])


def test_a_name_that_is_spelt_like_another_one_s_identifier_does_not_take_it():
    hashed = next(
        word for word, name in assign_identifiers(["a_b", "a-b"]).items() if name == "a-b"
    )
    words = assign_identifiers(["a_b", "a-b", hashed])
    assert len(words) == 3
    assert words[hashed] == hashed


@given(st.sets(st.text(max_size=12), max_size=12))
def test_every_name_gets_one_identifier_of_its_own(names: set[str]):
    words = assign_identifiers(names)
    assert sorted(words.values()) == sorted(names)
    for word in words:
        assert word.isidentifier()
        assert word.isascii()
        assert word not in RESERVED_WORDS
        assert not keyword.iskeyword(word)


# Flat names


def test_a_flat_name_is_server_and_tool():
    assert make_flat_name("github", "create_issue") == "github__create_issue"


def test_a_flat_name_that_would_be_too_long_or_illegal_ends_in_a_hash():
    long = make_flat_name("a" * 40, "b" * 40)
    assert len(long) == FLAT_NAME_CHARS
    assert long != make_flat_name("a" * 40, "b" * 41)
    assert make_flat_name("s", "a.b") != make_flat_name("s", "a/b")


def test_two_tools_never_share_a_flat_name():
    pairs = [("a", "b__c"), ("a__b", "c"), ("a_", "b"), ("a", "_b")]
    assert list(assign_flat_names(pairs).values()) == pairs


names = st.text("ab_-. é", min_size=1, max_size=80)


@given(
    st.lists(st.tuples(st.text("ab_-", min_size=1, max_size=40), names), max_size=12, unique=True)
)
def test_flat_names_are_legal_unique_and_lead_back(pairs: list[tuple[str, str]]):
    flat = assign_flat_names(pairs)
    assert list(flat.values()) == pairs
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in flat)


# The resolver


@pytest.mark.parametrize(
    "spelling",
    [
        "github.create_issue",
        "github::create_issue",
        "github:create_issue",
        "github/create_issue",
        "github__create_issue",
        " github.create_issue ",
        "GitHub.Create_Issue",
        "github.createIssue",
        "github create issue",
        "mcp__portico__github__create_issue",
        "mcp__my-gateway__github__create_issue",
        "mcp__github__create_issue",
        "mcp_portico_github_create_issue",
        "portico.github.create_issue",
        "portico__github__create_issue",
    ],
)
def test_every_usual_spelling_means_the_tool(spelling: str):
    assert resolver().resolve(spelling) == "github.create_issue"


@pytest.mark.parametrize(
    ("spelling", "address"),
    [
        ("data_server.list_items", "data-server.list-items"),
        ("data_server__list_items", "data-server.list-items"),
        ("_123numbers._while", "123numbers.while"),
        ("data-server.get.item", "data-server.get.item"),
        ("data_server.get_item", "data-server.get.item"),
        ("under__score__deep__tool", "under__score.deep__tool"),
        ("list_issues", "github.list_issues"),
        ("readTextFile", "files.readTextFile"),
        ("read_text_file", "files.readTextFile"),
        ("mcp__portico__read_text_file", "files.readTextFile"),
    ],
)
def test_identifiers_and_bare_names_mean_the_tool(spelling: str, address: str):
    assert resolver().resolve(spelling) == address


def test_an_identifier_that_had_to_be_distinguished_means_its_own_tool():
    twins = resolver("api.get-user", "api.get_user")
    hashed = next(
        word
        for word, name in assign_identifiers(["get-user", "get_user"]).items()
        if name == "get-user"
    )
    assert twins.resolve("api.get_user") == "api.get_user"
    assert twins.resolve(f"api.{hashed}") == "api.get-user"
    assert twins.resolve(f"api__{hashed}") == "api.get-user"


def test_a_bare_name_that_several_servers_have_lists_them():
    error = refusal("create_issue")
    assert error.nearest == ("github.create_issue", "gitlab.create_issue")
    assert "github.create_issue, gitlab.create_issue" in error.advice


def test_a_spelling_that_fits_two_tools_of_a_server_lists_both():
    error = refusal("api.GETUSER", resolver("api.get-user", "api.get_user"))
    assert error.nearest == ("api.get-user", "api.get_user")


def test_where_a_name_is_split_counts():
    both = resolver("a.bc", "ab.c")
    assert both.resolve("AB/C") == "ab.c"
    assert both.resolve("A/BC") == "a.bc"


@pytest.mark.parametrize(
    "wrong", ["github.create_isue", "github/crate_issue", "gihub.create_issue"]
)
def test_a_wrong_name_gets_the_nearest_names_back(wrong: str):
    error = refusal(wrong)
    assert error.nearest[0] == "github.create_issue"
    assert "github.create_issue" in error.advice


def test_the_nearest_are_the_ones_that_are_spelt_so_however_many_there_are():
    crowd = resolver(
        *(
            f"{server}.create_{thing}"
            for server in ("airflow", "asana")
            for thing in ("task", "event")
        )
    )
    assert refusal("gitlub.create_isue", crowd).nearest[:2] == (
        "github.create_issue",
        "gitlab.create_issue",
    )
    assert refusal("create_isue", crowd).nearest[:2] == (
        "github.create_issue",
        "gitlab.create_issue",
    )
    assert refusal("nosuchserver.list_issues", crowd).nearest[0] == "github.list_issues"


def test_the_nearest_of_thousands_are_those_of_all_of_them():
    names = [f"other-{number}" for number in range(3_500)]
    names[700], names[1_700], names[3_400] = "list_recrod", "list_records", "list record"
    assert find_nearest_names("List-Record", names) == (
        "list record",
        "list_records",
        "list_recrod",
    )


def test_a_name_like_nothing_here_is_sent_to_search():
    error = refusal("zzzzqqqq")
    assert error.nearest == ()
    assert "search_tools" in error.advice


def test_a_name_as_it_is_shown_means_the_tool_that_hides_characters_in_it():
    odd = resolver("odd.\x1b[31mred\x1b[0m", "odd.in\u200bvisible")
    assert odd.resolve("odd.red") == "odd.\x1b[31mred\x1b[0m"
    assert odd.resolve("odd.invisible") == "odd.in\u200bvisible"


@pytest.mark.parametrize(
    "name", ["", " ", ".", "::", "!!!", "github.", ".create_issue!", "mcp__", "portico."]
)
def test_punctuation_alone_never_means_a_tool(name: str):
    only = AddressResolver({"github.***": None})
    with pytest.raises(UnknownName):
        only.resolve(name)


def test_a_name_of_a_megabyte_is_refused_in_a_line():
    error = refusal("github.create_issue" * 50_000)
    assert len(str(error)) < 1_000
    assert refusal("x" * (MAX_NAME_CHARS + 1)).nearest == ()


def test_nearest_offers_at_most_as_many_as_wanted():
    assert len(find_nearest_names("tool", [f"s.tool{n}" for n in range(50)], 3)) == 3


def test_a_name_is_split_at_every_separator():
    assert set(split_name("a__b__c")) == {("a", "b__c"), ("a__b", "c")}
    assert set(split_name("a::b")) == {("a", "b"), ("a", ":b"), ("a:", "b")}
    assert list(split_name("plain")) == []


@settings(max_examples=300)
@given(st.one_of(st.text(max_size=40), st.text("._:/ -githubcreate_issue", max_size=40)))
def test_any_text_is_an_address_or_an_unknown_name(name: str):
    try:
        found = (resolver().resolve(name),)
    except UnknownName as error:
        found = error.nearest
    assert set(found) <= set(ADDRESSES)


segments = st.text(
    st.characters(exclude_characters=".", exclude_categories=["Cs"]), min_size=1, max_size=10
)


@given(
    st.sets(
        st.tuples(
            segments, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)
        )
    )
)
def test_an_address_always_means_itself(pairs: set[tuple[str, str]]):
    addresses = [f"{server}.{tool}" for server, tool in pairs]
    some = AddressResolver(dict.fromkeys(addresses))
    assert [some.resolve(address) for address in addresses] == addresses
