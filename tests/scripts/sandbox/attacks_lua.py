"""Lua scripts that mean harm: name, code, and the faults they may end with.

`harmless`: what was tried does not work, and the script ends by itself with the answer `true`. The
host offers
`calculator.add({a, b})` and `slow.wait({seconds})`, which answers after so long.
"""

HARMLESS = "harmless"

FILL = "local t = {} for i = 1, 1e9 do t[i] = string.rep('x', 1000) .. i end"
"""All the memory there is."""

ATTACKS: tuple[tuple[str, str, tuple[str, ...] | str], ...] = (
    ("endless loop", "while true do end", ("time",)),
    (
        "endless loop in pcall",
        "while true do pcall(function() while true do end end) end",
        ("time",),
    ),
    (
        "endless loop in a coroutine",
        "coroutine.wrap(function() while true do end end)()",
        ("time",),
    ),
    (
        "endless loop in an error handler",
        "xpcall(error, function() while true do end end, 'x')",
        ("time",),
    ),
    (
        "endless loop in a metamethod",
        "return setmetatable({}, {__index = function() while true do end end}).x",
        ("time",),
    ),
    ("endless goto", "::again:: goto again", ("time",)),
    (
        "pattern that backtracks",
        "return string.find(string.rep('a', 60000), string.rep('a-', 60) .. 'b')",
        ("time", "runtime"),
    ),
    (
        "table.move without end",
        "table.move({}, 1, 2^62 // 1 | 0, 2)",
        ("time", "memory", "runtime"),
    ),
    (
        "table.sort with a liar",
        (
            "local t = {} for i = 1, 1e6 do t[i] = i end while true do "
            "pcall(table.sort, t, function() "
            "return true end) end"
        ),
        ("time", "memory"),
    ),
    (
        "table.unpack of a million",
        "return select('#', table.unpack({}, 1, 1e8))",
        ("runtime", "memory"),
    ),
    ("string.rep bomb", "local s = 'x' while true do s = s:rep(1024) end", ("memory", "runtime")),
    (
        "string.rep bomb in pcall",
        "local s = string.rep('x', 1e7) while true do pcall(string.rep, s, 100) end",
        ("time", "memory"),
    ),
    (
        "table.concat bomb",
        (
            "local t = {} for i = 1, 1000 do t[i] = string.rep('x', 60000) end return "
            "table.concat(t, "
            "string.rep('y', 60000))"
        ),
        ("memory",),
    ),
    (
        "string.format bomb",
        "local s = 'x' while true do s = string.format('%s%s', s, s) end",
        ("memory",),
    ),
    ("concatenation bomb", "local s = 'x' while true do s = s .. s end", ("memory",)),
    ("tables without end", "local t = {} while true do t = {t} end", ("memory", "time")),
    ("strings without end", FILL, ("memory", "time")),
    (
        "memory in pcall, again and again",
        ("while true do pcall(function() " + FILL + " end) end"),
        ("time", "memory"),
    ),
    (
        "closures without end",
        "local t = {} while true do t[#t + 1] = function() return t end end",
        ("memory", "time"),
    ),
    (
        "coroutines without end",
        "local t = {} while true do t[#t + 1] = coroutine.create(print) end",
        ("memory", "time"),
    ),
    (
        "utf8.char bomb",
        (
            "local t = {} for i = 1, 200 do t[i] = 65 end local s = '' while true do s = s .. "
            "utf8.char(table.unpack(t)) end"
        ),
        ("memory", "time"),
    ),
    (
        "gsub with a callback that grows",
        (
            "local s = string.rep('x', 1000) while true do s = s:gsub('.', function() "
            "return 'xxxx' end) end"
        ),
        ("memory", "time", "runtime"),
    ),
    ("deep recursion", "local function f() return 1 + f() end return f()", ("recursion", "memory")),
    (
        "deep recursion in pcall",
        "local function f() return pcall(f) and f() + 1 end return f()",
        ("recursion", "memory", "time", "runtime"),
    ),
    (
        "deep recursion by metamethods",
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) "
            "return t[k .. 'x'] end return t.x"
        ),
        ("recursion", "memory", "runtime"),
    ),
    ("deep syntax", "return " + "(" * 10_000 + "1" + ")" * 10_000, ("syntax",)),
    ("deep answer", "local t = {} for i = 1, 100000 do t = {t} end return t", ("value",)),
    ("answer that contains itself", "local t = {} t.t = t return t", ("value",)),
    (
        "answer that doubles",
        "local t = {1} for i = 1, 60 do t = {t, t} end return t",
        ("value", "output", "memory", "time"),
    ),
    (
        "answer that is too large",
        "local t = {} for i = 1, 300 do t[i] = string.rep('x', 60000) end return t",
        ("value", "output", "memory"),
    ),
    ("answer that is a function", "return function() end", ("value",)),
    ("answer that is a coroutine", "result(coroutine.create(print))", ("value",)),
    ("answer that is no number", "return {0/0, 1/0}", ("value",)),
    (
        "values with metamethods",
        (
            "store('k', setmetatable({}, {__pairs = error, __index = error, __len = "
            "error, __name = 5, "
            "__tostring = error})) return true"
        ),
        HARMLESS,
    ),
    ("print flood", "while true do print(string.rep('x', 1000)) end", ("time",)),
    ("print flood of nothing", "while true do print() end", ("time",)),
    (
        "print of what cannot be shown",
        "print(setmetatable({}, {__tostring = function() return {} end}))",
        ("runtime",),
    ),
    (
        "print with a full memory",
        (
            "local t = {} pcall(function() for i = 1, 1e9 do t[i] = string.rep('x', "
            "1000) .. i end end) "
            "for i = 1, 1e5 do pcall(print, t) end"
        ),
        ("time", "memory"),
    ),
    (
        "calls with a full memory",
        (
            "local t = {} pcall(function() for i = 1, 1e9 do t[i] = string.rep('x', "
            "1000) .. i end end) "
            "for i = 1, 50 do pcall(calculator.add, {a = 1, b = 2}) end error('over')"
        ),
        ("runtime", "time", "memory", "call"),
    ),
    (
        "print from a full stack",
        (
            "local function f(n) local ok = pcall(f, n + 1) if not ok then "
            "pcall(print, n) end return f(n + 1) end f(1)"
        ),
        ("recursion", "memory", "time", "runtime"),
    ),
    (
        "store without end",
        "local i = 0 while true do i = i + 1 store('k' .. i, string.rep('x', 100000)) end",
        ("output", "time"),
    ),
    ("the gateway's language", "return python == nil", HARMLESS),
    (
        "libraries that reach out",
        (
            "return io == nil and not pcall(require, 'io') and package == nil and debug == nil "
            "and dofile == nil "
            "and loadfile == nil"
        ),
        HARMLESS,
    ),
    (
        "the system",
        (
            "return os.execute == nil and os.exit == nil and os.remove == nil and "
            "os.getenv == nil and "
            "os.tmpname == nil and os.rename == nil and os.setlocale == nil"
        ),
        HARMLESS,
    ),
    ("bytecode out", "return string.dump == nil and ('').dump == nil", HARMLESS),
    ("bytecode in", "return load('\\27Lua') == nil and load('return 1') == nil", HARMLESS),
    ("knobs of the collector", "return collectgarbage == nil", HARMLESS),
    (
        "finalizers",
        "return not pcall(setmetatable, {}, {__gc = function() while true do end end})",
        HARMLESS,
    ),
    (
        "finalizers added later",
        (
            "for i = 1, 100 do local m = {} setmetatable({}, m) m.__gc = function() "
            "while true do end end "
            "end return true"
        ),
        HARMLESS,
    ),
    (
        "metatable of strings",
        (
            "return getmetatable('') == false and not pcall(function() "
            "getmetatable('').__index = nil end)"
        ),
        HARMLESS,
    ),
    (
        "string methods replaced",
        (
            "string.format = error string.rep = error table.concat = error table.pack "
            "= error tostring = "
            "error type = error pcall = nil print('x') return calculator.add({a = 1, b "
            "= 2}):await() ~= "
            "nil"
        ),
        HARMLESS,
    ),
    (
        "attributes of a call",
        (
            "local h = calculator.add({a = 1, b = 2}) local found = false for _, k in "
            "ipairs({'__class__', '__globals__', '__self__', '__init__'}) do local ok, v = "
            "pcall(function() return h[k] end) if ok and v ~= nil then found = true end end "
            "h:await() return not found "
            "and getmetatable(h) == false"
        ),
        HARMLESS,
    ),
    (
        "attributes of functions",
        (
            "for _, f in ipairs({print, result, store, load, calculator.add, await}) do local ok = "
            "pcall(function() return f.__globals__ end) if ok or type(f) ~= 'function' "
            "then return false "
            "end end return true"
        ),
        HARMLESS,
    ),
    (
        "traceback of an error",
        (
            "local ok, e = pcall(function() calculator.add({a = print}) end) return "
            "not ok and type(e) == "
            "'string' and not pcall(function() return e.__traceback__.tb_frame end)"
        ),
        HARMLESS,
    ),
    (
        "handles that are forged",
        (
            "return not pcall(await, {}) and not pcall(await, 1) and not "
            "pcall(calculator.add({a=1,b=2}).await, {})"
        ),
        HARMLESS,
    ),
    (
        "the environment",
        (
            "local found = true for k, v in pairs(_G) do if type(v) == 'userdata' then "
            "found = false end "
            "end return found and _ENV == _G"
        ),
        HARMLESS,
    ),
    (
        "every reachable value",
        (
            "local seen, queue, bad = {}, {_G}, 0 while #queue > 0 do local t = "
            "table.remove(queue) if "
            "not seen[t] then seen[t] = true for k, v in next, t do for _, x in "
            "ipairs({k, v}) do if "
            "type(x) == 'userdata' then bad = bad + 1 end if type(x) == 'table' then "
            "queue[#queue + 1] = "
            "x end end end end end return bad == 0"
        ),
        HARMLESS,
    ),
    (
        "thousands of calls",
        "for i = 1, 1e6 do calculator.add({a = i, b = i}) end",
        ("call", "time", "memory"),
    ),
    (
        "thousands of failing calls in pcall",
        "while true do pcall(function() calculator.add({a = 'x'}):await() end) end",
        ("call", "time"),
    ),
    (
        "calls with huge arguments",
        "local s = string.rep('x', 15e6) for i = 1, 100 do calculator.add({a = s}) end",
        ("call", "time"),
    ),
    (
        "arguments that grow when they are written",
        "calculator.add({a = string.rep('\\1', 4000000)})",
        ("call", "time"),
    ),
    (
        "a hundred thousand values stored",
        "for i = 1, 1e5 do store('k' .. i, 1) end",
        ("output", "time"),
    ),
    (
        "a value that grows when it is written",
        "store('k', string.rep('\\1', 4000000))",
        ("runtime", "time"),
    ),
    (
        "calls never waited for",
        "for i = 1, 10 do slow.wait({seconds = 60}) end return true",
        HARMLESS,
    ),
    ("a slow call waited for", "slow.wait({seconds = 600}):await()", ("time",)),
    (
        "spinning while a slow call is under way",
        "slow.wait({seconds = 600}) while true do end",
        ("time",),
    ),
    (
        "sleeping in a loop",
        "while true do slow.wait({seconds = 0.01}):await() end",
        ("time", "call"),
    ),
    (
        "an error that is an error",
        "error(setmetatable({}, {__tostring = function() error('again') end}))",
        ("runtime", "recursion"),
    ),
    ("an error without end", "error(string.rep('x', 1e7))", ("runtime", "memory")),
    ("names with zeros", "calculator['add\\0'] ({}):await()", ("call",)),
    (
        "bytes that are no text",
        "return string.char(255, 254, 0) ~= nil and {[string.char(200)] = string.char(201)} ~= nil",
        HARMLESS,
    ),
    (
        "JSON nested without end",
        "return not pcall(json.decode, string.rep('[', 1e6))",
        HARMLESS,
    ),
    (
        "JSON of a million lists",
        (
            "local text = '[' .. string.rep('[],', 1e6) .. '0]' local t = {} "
            "while true do t[#t + 1] = json.decode(text) end"
        ),
        ("memory", "time", "runtime"),
    ),
    (
        "modules from outside",
        (
            "for _, name in ipairs({'os', 'package', 'python', 'lupa', '_G', {}}) do "
            "if pcall(require, name) then return false end end return true"
        ),
        HARMLESS,
    ),
    (
        "attributes of JSON functions",
        "return not pcall(function() return json.decode.__globals__ or json.encode.__self__ end)",
        HARMLESS,
    ),
    (
        "a call that answers itself",
        (
            "local h = calculator.add({a = 1, b = 2}) local t = {h} t[2] = t "
            "return not pcall(json.encode, t)"
        ),
        HARMLESS,
    ),
)
