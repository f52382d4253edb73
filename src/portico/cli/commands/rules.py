"""`portico rules`: what the rules make of a call, and what somebody sees.

--json: test as in `rule_explanation`; list
`{"seen": [{"kind", "name", "may", "rule"}], "hidden": number}`, where `may` is `depends` if
it does on the arguments.
"""

from collections.abc import Sequence
from functools import partial

from portico.callers import Caller
from portico.catalog.rule_targets import count_targets, list_decisions
from portico.cli.columns import Column, show_rows, texts
from portico.cli.commands.call import parse_arguments
from portico.cli.exit import EXIT_OK, print_note
from portico.cli.rule_explanation import explain_request
from portico.cli.rules_commands import RulesOptions
from portico.cli.setup import open_gateway
from portico.policy.explanation import make_test_caller
from portico.rendering.token_budget import format_count

_COLUMNS = (*texts("kind"), Column("name", style="cyan", no_wrap=True), *texts("may", "rule"))


async def run_test(name: str, words: Sequence[str], options: RulesOptions) -> int:
    setup, screen = options.load()
    caller = _make_caller(options)
    async with open_gateway(setup, screen) as gateway:
        parse = partial(parse_arguments, words)
        explained = explain_request(gateway, setup.profile, caller, name, parse)
    if screen.as_json:
        screen.write_json(explained.to_data())
    else:
        for line in explained.to_lines():
            screen.write_text(line)
    return EXIT_OK


async def run_list(options: RulesOptions) -> int:
    setup, screen = options.load()
    caller = _make_caller(options)
    async with open_gateway(setup, screen) as gateway:
        whole = gateway.get_view(setup.profile).snapshot
        shown = gateway.get_view(setup.profile, caller).snapshot
        own = gateway.calls.enforcement.rules.select_for(caller)
    rows = list(list_decisions(own, shown))
    hidden = count_targets(whole) - len(rows)
    if screen.as_json:
        seen = [vars(row) for row in rows]
        screen.write_json({"seen": seen, "hidden": hidden})
        return EXIT_OK
    show_rows(screen, _COLUMNS, [(row.kind, row.name, row.may, row.rule) for row in rows])
    if hidden:
        print_note(f"{format_count(hidden, 'more thing')} of the profile is not seen.")
    return EXIT_OK


def _make_caller(options: RulesOptions) -> Caller:
    return make_test_caller(
        options.who, tuple(options.group or ()), options.profile or "", options.client
    )
