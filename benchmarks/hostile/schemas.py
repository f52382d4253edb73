"""Schemas and values: what validation, its explanations, repair and the rendering of parameters
meet.

The server offers the schema, the client sends the arguments; either may be the hostile one.
"""

from benchmarks.hostile.kinds import (
    CLIENT_BYTES,
    SERVER_BYTES,
    Kind,
    nest,
    number,
    one,
    properties,
    repeat,
    runs,
    sends,
    structured_result,
    to_json,
    tool,
)

TEXT = '{"type":"string"}'
TEXTS = f'{{"type":"array","items":{TEXT}}}'
BOUND = 128 * 1024
"""Characters of an answer that is held against its schema."""


def _texts() -> str:
    return properties(items=TEXTS)


def _items(unit: str, size: int = CLIENT_BYTES) -> str:
    return repeat(unit, size, '{"items":[', "]}")


def _tree(keyword: str, branches: int = 2) -> str:
    again = ",".join(['{"type":"array","items":{"$ref":"#/$defs/T"}}'] * branches)
    return (
        properties(x='{"$ref":"#/$defs/T"}')[:-1] + f',"$defs":{{"T":{{"{keyword}":[{again}]}}}}}}'
    )


def _nest(depth: int = 150) -> str:
    return f'{{"x":{nest(depth, "[", "1", "]")}}}'


def _doubling_defs(depth: int, keyword: str = "allOf") -> str:
    defs = ",".join(
        f'"d{n}":{{"{keyword}":[{{"$ref":"#/$defs/d{n + 1}"}},{{"$ref":"#/$defs/d{n + 1}"}}]}}'
        for n in range(depth)
    )
    last = f'"d{depth}":{{"type":"object","properties":{{"a":{TEXT}}}}}'
    return properties(x='{"$ref":"#/$defs/d0"}')[:-1] + f',"$defs":{{{defs},{last}}}}}'


def _many_properties(count: int) -> str:
    return properties(**{f"p{n}": TEXT for n in range(count)})


def _words(count: int) -> str:
    return ",".join(f'"word number {n}"' for n in range(count))


def _pattern(pattern: str) -> str:
    return properties(x=to_json({"type": "string", "pattern": pattern}))


def _format(name: str) -> str:
    draft = '{"$schema":"http://json-schema.org/draft-07/schema#",'
    return draft + properties(x=f'{{"type":"string","format":"{name}"}}')[1:]


def _x(unit: str, size: int = CLIENT_BYTES) -> str:
    return repeat(unit, size, '{"x":"', '!"}', "")


def _array(rest: str) -> str:
    return properties(items=f'{{"type":"array",{rest}}}')


def _object(rest: str) -> str:
    return f'{{"type":"object",{rest}}}'


def _names(value: str = "1", size: int = CLIENT_BYTES) -> str:
    return number(lambda n: f'"name{n}":{value}', size, "{", "}")


def _anyof_of(count: int) -> str:
    return ",".join(f'{{"type":"object","required":["r{n}"]}}' for n in range(count))


def _conditions(depth: int) -> str:
    schema = TEXT
    for _ in range(depth):
        schema = (
            f'{{"if":{schema},"then":{schema},"else":false}}' if len(schema) < 4_000 else schema
        )
    return properties(x=schema)


def _patterns() -> str:
    each = ",".join(f'"^n.*{n}$":{TEXT}' for n in range(200))
    return _object(f'"patternProperties":{{{each}}}')


def _dependent(count: int) -> str:
    each = ",".join(f'"name{n}":{{"required":["gone{n}"]}}' for n in range(count))
    return _object(f'"dependentSchemas":{{{each}}}')


def _dynamic() -> str:
    branch = '{"type":"array","items":{"$dynamicRef":"#T"}}'
    tree = f'{{"$dynamicAnchor":"T","anyOf":[{branch},{branch}]}}'
    return properties(x='{"$ref":"#/$defs/T"}')[:-1] + f',"$defs":{{"T":{tree}}}}}'


def _output(schema: str) -> str:
    return f',"outputSchema":{schema}'


def _rows_output(items: str) -> str:
    return _output(
        f'{{"type":"object","properties":{{"rows":{{"type":"array","items":{items}}}}}}}'
    )


def _rows(unit: str, size: int = BOUND - 4096) -> str:
    return structured_result(repeat(unit, size, '{"rows":[', "]}"))


EXPLAIN, VALID, REPAIR = "schema: explanation", "schema: validation", "repair of arguments"
PATTERN, RENDER, COMPILE = (
    "regular expression in a schema",
    "rendering of a schema",
    "schema: compilation",
)
OUTPUT = "validation of an answer"

KINDS = (
    Kind("array of strings, every item a list", "client", EXPLAIN, sends(lambda: _items("[]")),
         one(_texts)),
    Kind("array of strings, every item an object", "client", EXPLAIN, sends(lambda: _items(
         '{"a":[]}')), one(_texts)),
    Kind("array of strings, every item a number", "client", REPAIR, sends(lambda: _items("1")),
         one(_texts)),
    Kind("array of strings, one item wrong in 24,000", "client", EXPLAIN,
         sends(lambda: _items('"abcdefgh"')[:-2] + ",[]]}"), one(_texts)),
    Kind("array of strings, all of them right, 24,000 values", "client", VALID,
         sends(lambda: _items(
         '"a"')), one(_texts)),
    Kind("recursive anyOf, value nested 150 deep", "client", EXPLAIN, sends(_nest), one(
         lambda: _tree("anyOf"))),
    Kind("recursive anyOf, 33 bytes", "client", EXPLAIN, sends(lambda: _nest(14)),
         one(lambda: _tree("anyOf"))),
    Kind("recursive oneOf, value nested 150 deep", "client", EXPLAIN, sends(_nest), one(
         lambda: _tree("oneOf"))),
    Kind("recursive allOf, value nested 150 deep", "client", EXPLAIN, sends(_nest), one(
         lambda: _tree("allOf"))),
    Kind("recursive anyOf of 50, value nested 20 deep", "client", EXPLAIN, sends(lambda: _nest(
         20)),
         one(lambda: _tree("anyOf", 50))),
    Kind("recursive anyOf, value wide and deep, 24,000 values", "client", EXPLAIN,
         sends(lambda: repeat("[[[[[[1]]]]]]", CLIENT_BYTES, '{"x":[', "]}")), one(lambda: _tree(
         "anyOf"))),
    Kind("$dynamicRef, value nested 150 deep", "client", EXPLAIN, sends(_nest), one(_dynamic)),
    Kind("$defs that double 10 times, arguments wrong", "client", EXPLAIN, sends(
         lambda: '{"x":{"a":1}}'),
         one(lambda: _doubling_defs(10))),
    Kind("anyOf of 5,000, 24,000 items", "client", EXPLAIN, sends(lambda: _items('{"a":1}')),
         one(lambda: _array(f'"items":{{"anyOf":[{_anyof_of(5_000)}]}}'))),
    Kind("if/then/else nested, every one evaluated", "client", EXPLAIN, sends(lambda: '{"x":1}'),
         one(lambda: _conditions(30))),
    Kind("enum of 100,000 words, 24,000 others", "client", EXPLAIN, sends(lambda: _items('"wrd"')),
         one(lambda: _array(f'"items":{{"enum":[{_words(100_000)}]}}'))),
    Kind("enum of 100,000 words, nearly one of them", "client", REPAIR, sends(
         lambda: '{"x":"WORD-NUMBER-99999"}'),
         one(lambda: properties(x=f'{{"enum":[{_words(100_000)}]}}'))),
    Kind("uniqueItems, 24,000 numbers", "client", VALID,
         sends(lambda: number(str, CLIENT_BYTES, '{"items":[', "]}")), one(lambda: _array(
         '"uniqueItems":true'))),
    Kind("uniqueItems, 24,000 objects", "client", VALID,
         sends(lambda: number(lambda n: f'{{"a":{n}}}', CLIENT_BYTES, '{"items":[', "]}")),
         one(lambda: _array('"uniqueItems":true'))),
    Kind("contains that nothing fits, 24,000 items", "client", EXPLAIN, sends(lambda: _items("1")),
         one(lambda: _array('"contains":{"type":"object","required":["a"]},"minContains":5'))),
    Kind("additionalProperties wrong, 24,000 names", "client", EXPLAIN, sends(_names),
         one(lambda: _object(f'"additionalProperties":{TEXT}'))),
    Kind("additionalProperties false, 24,000 names", "client", EXPLAIN, sends(_names),
         one(lambda: _object('"properties":{"a":{}},"additionalProperties":false'))),
    Kind("unevaluatedProperties, 24,000 names", "client", EXPLAIN, sends(_names),
         one(lambda: _object(f'"anyOf":[{_anyof_of(50)},{{}}],"unevaluatedProperties":false'))),
    Kind("propertyNames with a pattern, 24,000 names", "client", EXPLAIN, sends(_names),
         one(lambda: _object('"propertyNames":{"pattern":"^[a-z]{3}$"}'))),
    Kind("patternProperties of 200 patterns, 24,000 names", "client", PATTERN, sends(_names), one(
         _patterns)),
    Kind("dependentSchemas of 2,000, all of them wrong", "client", EXPLAIN, sends(_names), one(
         lambda: _dependent(2_000))),
    Kind("required of 50,000 names, none there", "client", EXPLAIN, sends(lambda: '{"name":1}'),
         one(lambda: _object(f'"properties":{{"a":{TEXT}}},"required":[{_words(50_000)}]'))),
    Kind("200 parameters, 24,000 names like them", "client", "nearest parameter name",
         sends(lambda: number(lambda n: f'"parameter_nombre_{n}":1', CLIENT_BYTES, "{", "}")),
         one(lambda: properties(**{f"parameter_number_{n}": TEXT for n in range(200)})[:-1]
             + ',"required":["parameter_number_1"],"additionalProperties":false}')),
    Kind("arguments as 4 MB of JSON text", "client", REPAIR,
         sends(lambda: to_json(_items("[]", CLIENT_BYTES * 9 // 10))), one(_texts)),
    Kind("a list as 4 MB of JSON text", "client", REPAIR,
         sends(lambda: to_json({"items": repeat("1", CLIENT_BYTES * 9 // 10, "[", "]")})), one(
         _texts)),
    Kind("pattern with look-ahead, 4 MB of text", "server", PATTERN, sends(lambda: _x("a")),
         one(lambda: _pattern("^((?=a)a+)+$"))),
    Kind("pattern with look-ahead, 100,000 short texts", "server", PATTERN,
         sends(lambda: _items(f'"{"a" * 38}!"')),
         one(lambda: _array('"items":{"type":"string","pattern":"^((?=a)a+)+$"}'))),
    Kind("pattern with look-behind, 4 MB of text", "server", PATTERN, sends(lambda: _x("a")),
         one(lambda: _pattern("(?<=a)(a|aa)+$"))),
    Kind("pattern with a back reference, 4 MB of text", "server", PATTERN, sends(lambda: _x("ab")),
         one(lambda: _pattern("(.*)(.*)(.*)\\1\\2\\3x$"))),
    Kind("pattern with nested counts, 4 MB of text", "server", PATTERN, sends(lambda: _x("a")),
         one(lambda: _pattern("^((a{1,50}){1,50}){1,40}$"))),
    Kind("formats of draft 7, 4 MB of text", "server", PATTERN, sends(lambda: _x("a@b.")), one(
         lambda: _format("email"))),
    Kind("format regex, 4 MB of text", "server", PATTERN, sends(lambda: _x("(a|b)*")), one(
         lambda: _format("regex"))),
    Kind("anyOf of 200 for an answer, 20,000 items", "server", OUTPUT, sends(lambda: "{}"),
         one(lambda: '{"type":"object"}', lambda: _rows_output(f'{{"anyOf":[{_anyof_of(200)}]}}')),
         lambda: _rows("1", BOUND // 3)),
    Kind("array of strings for an answer, items wrong", "server", OUTPUT, sends(lambda: "{}"),
         one(lambda: '{"type":"object"}', lambda: _rows_output(TEXT)),
         lambda: _rows("[]", BOUND // 2)),
    Kind("recursive anyOf for an answer, nested 100 deep", "server", OUTPUT, sends(lambda: "{}"),
         one(lambda: '{"type":"object"}', lambda: _output(_tree("anyOf"))),
             lambda: structured_result(
         _nest(100))),
    Kind("pattern with look-around for an answer", "server", OUTPUT, sends(lambda: "{}"),
         one(lambda: '{"type":"object"}', lambda: _output(_pattern("(?<=a)(a|aa)+$"))),
         lambda: structured_result(_x("a", BOUND - 4096))),
    Kind("schema of 20,000 parameters, described", "server", RENDER,
         runs("describe_tools", lambda: '{"names":["hostile.t"],"detail":"full"}'), one(
         lambda: _many_properties(20_000))),
    Kind("schema nested 90 deep, described", "server", RENDER,
         runs("describe_tools", lambda: '{"names":["hostile.t"],"detail":"schema"}'),
         one(lambda: nest(45, '{"type":"object","properties":{"a":', TEXT, "}}"))),
    Kind("schema whose $defs double 60 times, described", "server", RENDER,
         runs("describe_tools", lambda: '{"names":["hostile.t"],"detail":"schema"}'), one(
         lambda: _doubling_defs(60))),
    Kind("schema whose $defs double 60 times, wrong call", "server", COMPILE, sends(
         lambda: '{"x":{"a":1}}'),
         one(lambda: _doubling_defs(60, "anyOf"))),
    Kind("enum of 300,000 words, described", "server", RENDER,
         runs("describe_tools", lambda: '{"names":["hostile.t"],"detail":"full"}'),
         one(lambda: properties(x=f'{{"enum":[{_words(300_000)}]}}'))),
    Kind("schema of 30 MB, called", "server", COMPILE, sends(lambda: '{"p1":1}'), lambda: [
        tool(number(lambda n: f'"p{n}":{TEXT}', SERVER_BYTES // 2,
         '{"type":"object","properties":{', "}}"))]),
    Kind("description of 5 MB, described", "server", RENDER,
         runs("describe_tools", lambda: '{"names":["hostile.t"],"detail":"full"}'),
         lambda: [tool(description="word. " * 900_000)]),
    Kind("ten definitions of 5 MB, described at once", "server", RENDER,
         runs("describe_tools", lambda: to_json({"names": [f"hostile.t{n}" for n in range(10)]})),
         lambda: [tool(properties(x=f'{{"description":"{"words and words. " * 300_000}"}}'),
         name=f"t{n}")
                  for n in range(10)]),
)  # fmt: skip
