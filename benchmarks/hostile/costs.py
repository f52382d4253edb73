"""Schemas whose real cost is far above what their length and their values say."""

from benchmarks.hostile.kinds import (
    CLIENT_BYTES,
    Kind,
    nest,
    number,
    one,
    properties,
    repeat,
    runs,
    sends,
    to_json,
    tool,
)

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
COUNT, DEPEND, UNIQUE = "schema: counting of a value", "schema: dependencies", "schema: uniqueItems"
PATTERN, EXAMPLE, FORMAT = "compilation of a pattern", "example from a schema", "schema: formats"
NEAREST = "nearest names"
_RESOURCE = "portico://backend/{backend_name}/resource/{+uri}"


def _recursive_below() -> str:
    branch = '{"type":"array","items":{"$ref":"#/$defs/T"}}'
    tree = f'{{"anyOf":[{branch},{branch}]}}'
    return (
        properties(x='{"items":{"items":{"$ref":"#/$defs/T"}}}')[:-1] + f',"$defs":{{"T":{tree}}}}}'
    )


_DEEP_BEFORE_MANY = f"await hostile.t(x=[{nest(30, '[', '1', ']')}] + [1] * 250_000)"


def _names(count: int) -> list[str]:
    return [f"{n:x}" for n in range(count)]


def _items(rule: dict[str, object]) -> str:
    return properties(x=to_json({"type": "array", "items": rule}))


def _required_by_each() -> str:
    names = _names(150)
    return _items({"dependentRequired": dict.fromkeys(names, names)})


def _patterns(count: int) -> str:
    fields = {
        f"x{n}": {"type": "string", "pattern": rf"^[\p{{L}}\p{{N}}]{{1,{n + 1}}}$"}
        for n in range(count)
    }
    return to_json({"type": "object", "properties": fields, "required": list(fields)})


def _formats(name: str) -> str:
    rules = {"allOf": [{"format": name}] * 3_000}
    return to_json({"$schema": DRAFT_7, "type": "object", "properties": {"x": rules}})


def _long_addresses() -> dict[str, list[str]]:
    rest = "customer/records/" * 50
    return {"resources": [f'{{"uri":"file:///{n}/{rest}","name":"r{n}"}}' for n in range(50_000)]}


KINDS = (
    Kind("recursive anyOf, its depth beside 250,000 items", "client", COUNT, runs(
         "run_code", lambda: to_json({"code": _DEEP_BEFORE_MANY})), one(_recursive_below)),
    Kind("dependentRequired of 15,000 names, none there", "client", DEPEND, sends(
         lambda: repeat('{"k":1}', 2_400, '{"x":[', "]}")),
         one(lambda: _items({"dependentRequired": {"k": _names(15_000)}}))),
    Kind("dependencies of 15,000 names, none there", "client", DEPEND, sends(
         lambda: repeat('{"k":1}', 2_400, '{"x":[', "]}")),
         one(lambda: _items({"dependencies": {"k": _names(15_000)}}))),
    Kind("dependentRequired, every name by every other", "client", DEPEND, sends(
         lambda: repeat(to_json(dict.fromkeys(_names(150), 1)), 150_000, '{"x":[', "]}")),
         one(_required_by_each)),
    Kind("uniqueItems, integers over 64 bits", "client", UNIQUE, sends(
         lambda: number(lambda n: str(10**20 + n), 24_000 * 22, '{"x":[', "]}")),
         one(lambda: properties(x='{"type":"array","uniqueItems":true}'))),
    Kind("pattern of 15,000 word characters", "server", PATTERN, sends(lambda: '{"x":"a"}'),
         one(lambda: properties(x=to_json({"type": "string", "pattern": r"\w" * 15_000})))),
    Kind("pattern of 15,000 letters of any case", "server", PATTERN, sends(lambda: '{"x":"a"}'),
         one(lambda: properties(x=to_json({"type": "string",
             "pattern": "(?i)" + r"\p{L}" * 15_000})))),
    Kind("300 patterns of letters, described", "server", EXAMPLE, runs(
         "describe_tools", lambda: '{"names":["hostile.t"],"detail":"full"}'),
         one(lambda: _patterns(300))),
    Kind("ten descriptions of 12,000 digits, described", "server", "condensed descriptions", runs(
         "describe_tools", lambda: to_json({"names": [f"hostile.t{n}" for n in range(10)]})),
         lambda: [tool(description=f"Lists the customers of the shop. {'1' * 11_000} and more:",
             name=f"t{n}") for n in range(10)]),
    Kind("format uri-reference 3,000 times, 4 MB of text", "client", FORMAT, sends(
         lambda: repeat("a", CLIENT_BYTES, '{"x":"', '"}', "")), one(lambda: _formats(
             "uri-reference"))),
    Kind("script of 10,000 wrong names, 20,000 tools", "client", NEAREST, runs(
         "run_code", lambda: to_json({"code": "\n".join(f"hostile.lst_custmr_{n}()" for n in range(
             10_000))})),
         lambda: [tool(name=f"list_customer_records_{n}") for n in range(20_000)]),
    Kind("completion of a wrong address, 50,000 long ones", "client", NEAREST, lambda: [(
         "completion/complete", to_json({
             "ref": {"type": "ref/resource", "uri": _RESOURCE},
             "argument": {"name": "uri", "value": "lst custmr rcrds " * 11},
             "context": {"arguments": {"backend_name": "hostile"}}}))],
         lists=_long_addresses, relists=True),
)  # fmt: skip
