"""What a hostile client sends besides arguments: paths, patterns, workflows, scripts, names,
frames."""

from urllib.parse import quote

from benchmarks.hostile.kinds import (
    CLIENT_BYTES,
    CLIENT_LIMIT,
    MIB,
    RESULT,
    Kind,
    Request,
    call,
    meta_tool,
    nest,
    number,
    read,
    repeat,
    runs,
    sends,
    structured_result,
    text_result,
    to_json,
    tool,
)

PATH, GREP, FLOW = "JMESPath of read_result", "grep of read_result", "references of a workflow"
DECODE, SEARCH, NEAREST = "JSON decoding of a request", "encoding of a query", "nearest names"
CODE_CHARS = 256 * 1024
"""Characters of a script; more are refused."""


def _rows(size: int) -> str:
    # As many rows as the limit of values in an answer lets in.
    return structured_result(
        number(
            lambda n: (
                f'{{"id":{n},"name":"row {n} of a table of all the customers","tags":["a","b"]}}'
            ),
            size,
            '{"rows":[',
            "]}",
        )
    )


def _double(count: int, step: str = "[@,@]") -> str:
    return "|".join([step] * count)


def _steps(*arguments: str, more: str = "") -> str:
    steps = ",".join(
        f'{{"id":"s{n}","tool":"hostile.t","arguments":{one}{more}}}'
        for n, one in enumerate(arguments)
    )
    return f'{{"steps":[{steps}],"inputs":{{"x":[1]}}}}'


def _many_references() -> str:
    text = to_json(" ".join(["${inputs.x}"] * 1_000))
    return _steps(*[f'{{"a":{text}}}'] * 50)


def _inputs_everywhere() -> str:
    steps = [
        {"id": f"s{n}", "tool": "hostile.t", "arguments": {"a": "${inputs}", "b": "x ${inputs}"}}
        for n in range(50)
    ]
    inputs = repeat("[]", CLIENT_BYTES - 8192, '{"x":[', "]}")
    return f'{{"steps":{to_json(steps)},"inputs":{inputs}}}'


def _for_each() -> str:
    step = {
        "id": "s",
        "tool": "hostile.t",
        "for_each": "${inputs.x}",
        "arguments": {"a": "${inputs.x}", "b": "${item}"},
    }
    inputs = repeat('"abcdefghijklmnopqrst"', 200 * 24, '{"x":[', "]}")
    return f'{{"steps":[{to_json(step)}],"inputs":{inputs}}}'


def _near_names() -> str:
    steps = [
        {"id": f"s{n}", "tool": f"hostle.{'t' * 80_000}{n}", "arguments": {}} for n in range(50)
    ]
    return to_json({"steps": steps})


def _batch() -> list[Request]:
    ping = '{"jsonrpc":"2.0","id":1,"method":"ping"}'
    return [("BODY", repeat(ping, CLIENT_BYTES, "[", "]"))]


def _frame(method: str, params: str) -> list[Request]:
    return [(method, params)]


def _script(code: str, language: str = "python") -> str:
    return to_json({"code": code, "language": language})


def _completion(value: str) -> list[Request]:
    ref = '{"type":"ref/resource","uri":"portico://tool/{tool_name}"}'
    return _frame(
        "completion/complete",
        f'{{"ref":{ref},"argument":{{"name":"tool_name","value":"{value}"}}}}',
    )


def _near_tools(count: int = 20_000) -> list[str]:
    return [tool(name=f"list_customer_records_{n}") for n in range(count)]


def _query() -> str:
    return " ".join(f"custmoer{n} recrods" for n in range(160))


def _misspelt() -> str:
    return to_json({"query": _query()})


KEPT = 24 * MIB
"""A result of that size is kept whole; reading it takes the gateway about a second."""


def _store_values() -> str:
    return _rows(KEPT)


def _letters() -> str:
    return text_result("a" * (8 * MIB))


def _reads(name: str, path: str, meets: str = PATH) -> Kind:
    return Kind(name, "client", meets, read(path=path), answer=_store_values, keeps=True)


def _greps(name: str, grep: str) -> Kind:
    return Kind(name, "client", GREP, read(grep=grep), answer=_letters, keeps=True)


KINDS = (
    _reads("path that doubles 40 times", _double(40)),
    _reads("path that doubles 22 times, then to_string", _double(22) + "|to_string(@)"),
    _reads("path that doubles objects 30 times", _double(30, "{a:@,b:@}")),
    _reads("path that doubles and flattens", _double(30, "[@,@][]")),
    _reads("path that maps a doubling over all rows",
         "rows[*].[@,@,@,@]|[*].[@,@,@,@]|to_string(@)"),
    _reads("path to_string of 24 MB", "to_string(@)"),
    _reads("path that sorts 24 MB by name", "sort_by(rows,&name)[*].id|sort(@)|reverse(@)"),
    _reads("path that compares every row with all", "rows[?contains(`[1]`,id)||rows[?id==`1`]]"),
    _reads("path that joins and splits 24 MB", "join(',',rows[*].name)|[@,@,@,@]|[*].length(@)"),
    _reads("path with 400 filters", "rows" + "[?id>`1`]" * 90),
    _reads("path of 450 brackets", nest(450, "(", "@", ")")),
    _reads("path over all values of 24 MB", "rows[].*[]|[]|length(@)"),
    _greps("grep (a+)+$", "(a+)+$"),
    _greps("grep with look-around", "(?=(a*)*b)(?!c)"),
    _greps("grep with nested counts", "((a{1,200}){1,200}){1,200}b"),
    _greps("grep of three hundred alternatives", "|".join(f"a{n}" for n in range(200)) + "|a"),
    _greps("grep .*.*.*x over one line of 8 MB", ".*.*.*x"),
    _greps("grep of a letter that is everywhere", "a"),
    Kind("cursor of 4 MB", "client", "cursors", lambda: meta_tool(
        "read_result", f'{{"result_id":"{RESULT}","cursor":"{"A" * (CLIENT_BYTES - 1024)}"}}'),
         answer=_letters, keeps=True),
    Kind("workflow text that doubles 27 times", "client", FLOW, runs("run_workflow", lambda: _steps(
        to_json({"a": f"x ${{inputs.x|{_double(27)}}}"})))),
    Kind("workflow value that doubles 40 times", "client", FLOW, runs("run_workflow",
         lambda: _steps(
        to_json({"a": f"${{inputs.x|{_double(40)}}}"})))),
    Kind("workflow condition that doubles 27 times", "client", FLOW, runs("run_workflow",
         lambda: _steps(
        "{}", more=f',"if":{to_json(f"${{inputs.x|{_double(27)}|to_string(@)}}")}'))),
    Kind("workflow of 50 steps, 1,000 references each", "client", FLOW, runs("run_workflow",
         _many_references)),
    Kind("workflow inputs of 24,000 values, said in every step", "client", FLOW,
         runs("run_workflow",
         _inputs_everywhere)),
    Kind("workflow over 200 items, all of them each time", "client", FLOW, runs("run_workflow",
         _for_each)),
    Kind("workflow arguments nested 240 deep", "client", FLOW, runs("run_workflow", lambda: _steps(
        '{"a":' + nest(200, "[", '"${inputs.x}"', "]") + "}"))),
    Kind("workflow of names nearly right, 4 MB", "client", NEAREST, runs("run_workflow",
         _near_names)),
    Kind("workflow of 4 MB of text like references", "client", FLOW, runs("run_workflow",
         lambda: _steps(
        f'{{"a":"{repeat("{{s0.a.b.c}} $s0.a ", CLIENT_BYTES - 1024, between="")}"}}'))),
    Kind("intent of 4 MB", "client", "planning of a workflow", runs("run_workflow", lambda: repeat(
        "find the customer 'a b', then list 12 records of 3.14,", CLIENT_BYTES, '{"intent":"',
         '"}', " "))),
    Kind("intent of nothing but blanks", "client", "planning of a workflow", runs("run_workflow",
         lambda: to_json({"intent": f"find customers{' ' * 3_900}then list orders"}))),
    Kind("query of nothing but full stops", "client", SEARCH, runs("search_tools",
         lambda: to_json({"query": f"customers{'.' * 3_900}"}))),
    Kind("query of 4 MB", "client", SEARCH, runs("search_tools", lambda: repeat(
        "customers", CLIENT_BYTES, '{"query":"', '"}', " "))),
    Kind("query of 4 MB of combining characters", "client", SEARCH, runs("search_tools",
         lambda: repeat(
        "e\\u0301\\u0327", CLIENT_BYTES, '{"query":"', '"}', ""))),
    Kind("query of one word of 4 MB", "client", SEARCH, runs("search_tools", lambda: repeat(
        "customer", CLIENT_BYTES, '{"query":"', '"}', ""))),
    Kind("query of 160 misspelt words, 20,000 tools", "client", SEARCH, runs("search_tools",
         _misspelt), _near_tools),
    Kind("REST search of misspelt words, 20,000 tools", "client", SEARCH, lambda: [(
         f"GET /api/v1/tools?query={quote(_query())}", "")], _near_tools),
    Kind("script that searches with misspelt words, 20,000 tools", "client", SEARCH, runs(
         "run_code", lambda: to_json({"code": f"await search_tools({_query()!r})"})), _near_tools),
    Kind("intent of misspelt words, 20,000 tools", "client", SEARCH, runs(
         "run_workflow", lambda: to_json({"intent": _query()})), _near_tools),
    Kind("wrong name among 20,000 like it", "client", NEAREST, lambda: call(
         name="hostile.list_custmer_recrods_1"),
         _near_tools),
    Kind("ten wrong names of 400 kB to describe", "client", NEAREST, runs("describe_tools",
         lambda: to_json(
        {"names": [f"hostile.{'list_custmer' * 33_000}{n}" for n in range(10)]})), _near_tools),
    Kind("completion of 4 MB", "client", NEAREST, lambda: _completion("x" * (CLIENT_BYTES - 1024))),
    Kind("completion of a wrong name, 20,000 tools", "client", NEAREST, lambda: _completion(
         "lst custmr rcrds"),
         _near_tools),
    Kind("tag list of 24,000 values", "client", "arguments of a meta-tool", runs("search_tools",
         lambda: repeat(
        '"a"', CLIENT_BYTES, '{"query":"x","tags":[', "]}"))),
    Kind("unknown arguments, 24,000 of them", "client", "arguments of a meta-tool", runs(
         "search_tools", lambda: number(
        lambda n: f'"qeury{n}":1', CLIENT_BYTES, "{", "}"))),
    Kind("resource address of 4 MB", "client", "resource addresses", lambda: _frame(
        "resources/read", f'{{"uri":"portico://result/{"%41" * (CLIENT_BYTES // 3 - 1024)}"}}')),
    Kind("prompt arguments of 24,000 values", "client", "prompts",
         lambda: _frame("prompts/get", number(
        lambda n: f'"a{n}":"b"', CLIENT_BYTES, '{"name":"find_tool","arguments":{', "}}"))),
    Kind("prompt argument of one text of 4 MB", "client", "prompts", lambda: _frame(
        "prompts/get",
         f'{{"name":"find_tool","arguments":{{"task":"{"word " * (CLIENT_BYTES // 5 - 100)}"}}}}')),
    Kind("script of 4 MB", "client", "script sources", runs("run_code", lambda: _script(
         "x = 1\\n" * (CLIENT_BYTES // 10)))),
    Kind("script of 256 kB of names of tools", "client", "script sources", runs("run_code",
         lambda: _script(
        "hostile.t()\n" * (CODE_CHARS // 12 - 10)))),
    Kind("script of 256 kB of brackets", "client", "script sources", runs("run_code",
         lambda: _script(
        "[" * (CODE_CHARS - 10)))),
    Kind("script of 256 kB of line ends", "client", "script sources", runs("run_code",
         lambda: _script(
        "\n" * (CODE_CHARS - 10) + "["))),
    Kind("script that answers 4 MB of lists", "client", "answers of scripts", runs("run_code",
         lambda: _script(
        "[[] for _ in range(1000000)]"))),
    Kind("script that answers 4 MB of lists as text", "client", "answers of scripts", runs(
         "run_code", lambda: _script(
        "_portico_host('result', '[' + '[],' * 1_390_000 + '[]]')"))),
    Kind("Lua script that answers 4 MB of lists", "client", "answers of scripts", runs("run_code",
         lambda: _script(
        "local t = {} for i = 1, 400000 do t[i] = {i} end return t", "lua"))),
    Kind("JavaScript that answers 4 MB of objects", "client", "answers of scripts", runs(
         "run_code", lambda: _script(
        "result(Array.from({length: 300000}, (_, i) => ({a: i})))", "javascript"))),
    Kind("script that calls with 2 MB of arguments", "client", "calls of scripts", runs("run_code",
         lambda: _script(
        "for _ in range(5):\n    await hostile.t(x=[[] for _ in range(400000)])\n1"))),
    Kind("24,000 empty lists", "client", DECODE, sends(lambda: repeat("[]", CLIENT_BYTES,
         '{"x":[', "]}"))),
    Kind("24,000 small objects", "client", DECODE, sends(lambda: number(
        lambda n: f'{{"k{n}":{n}}}', CLIENT_BYTES, '{"x":[', "]}"))),
    Kind("24,000 names", "client", DECODE, sends(lambda: number(lambda n: f'"{n}":0',
         CLIENT_BYTES, "{", "}"))),
    Kind("24,000 numbers", "client", DECODE, sends(lambda: repeat("1.5e9", CLIENT_BYTES, '{"x":[',
         "]}"))),
    Kind("24,000 numbers of 20 digits each", "client", DECODE,
         sends(lambda: repeat("9" * 20, CLIENT_BYTES,
         '{"x":[', "]}"))),
    Kind("one number of 4 MB", "client", DECODE,
         sends(lambda: f'{{"x":{"9" * (CLIENT_BYTES - 16)}}}')),
    Kind("4 MB of escapes", "client", DECODE, sends(lambda: repeat("\\u00e9", CLIENT_BYTES,
         '{"x":"', '"}', ""))),
    Kind("4 MB of half surrogate pairs", "client", DECODE, sends(lambda: repeat("\\ud800",
         CLIENT_BYTES, '{"x":"', '"}', ""))),
    Kind("4 MB of opening brackets", "client", DECODE, lambda: [("BODY", "[" * CLIENT_BYTES)]),
    Kind("240 levels, 24,000 values", "client", DECODE, sends(lambda: repeat(
        nest(230, "[", "", "]"), CLIENT_BYTES, '{"x":[', "]}"))),
    Kind("a batch of 100,000 requests", "client", DECODE, _batch),
    Kind("_meta of 24,000 values", "client", DECODE, lambda: _frame("tools/call", repeat(
        "[]", CLIENT_BYTES, '{"name":"call_tool","arguments":{"name":"hostile.t"},"_meta":{"a":[',
         "]}}"))),
    Kind("method of 4 MB", "client", DECODE, lambda: [("BODY", (
        f'{{"jsonrpc":"2.0","id":1,"method":"{"m" * (CLIENT_BYTES - 100)}"}}'))]),
    Kind("a request over the limit", "client", "size of a request", sends(
         lambda: f'{{"x":"{"x" * CLIENT_LIMIT}"}}')),
)  # fmt: skip
