"""The Lua side of a script: what it finds when it begins. The host's functions are reachable from
here alone.

Lua's memory limit is the allocator's, and lupa moves values between the two languages unprotected:
reaching the limit there would end the process. So `host` lifts the limit for the crossing only
(`enter`), and sets it again (`leave`); the first allocation of the script afterwards fails as it
should, inside Lua. `enter` is called with as many arguments as the function itself, so that
whatever stack one needs, the other had.
"""

PRELUDE = rb"""
local enter, leave, begin, wait, say, show, keep, recall, answer = ...
local error, type, select, setmetatable, getmetatable = error, type, select, setmetatable, getmetatable
local tostring, rawequal, rawget, rawset, ipairs, xpcall = tostring, rawequal, rawget, rawset, ipairs, xpcall
local pack, unpack, concat, getinfo = table.pack, table.unpack, table.concat, debug.getinfo

local function over(...) leave() return ... end
local function host(f, a, b, c) enter(nil, nil, nil) return over(f(a, b, c)) end

-- Away with what reaches out of the script, or under it.
for _, name in ipairs { "python", "io", "require", "package", "debug", "dofile", "loadfile", "load", "collectgarbage",
                        "warn", "print" } do
  _G[name] = nil
end
string.dump = nil
os = { time = os.time, clock = os.clock, date = os.date, difftime = os.difftime }
getmetatable("").__metatable = false

function _G.setmetatable(object, metatable)
  -- A finalizer would run when the script is long over.
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then error("__gc is not available", 2) end
  return setmetatable(object, metatable)
end

local function sealed(metatable) metatable.__metatable = false return metatable end

-- What JSON has and Lua has not: null in a list, and a list that is empty.
local null = setmetatable({ ["\0null"] = true }, sealed {
  __tostring = function() return "null" end,
  __newindex = function() error("null cannot be changed", 2) end,
})
local lists = setmetatable({}, { __mode = "k" })
local function array(t)
  if type(t) ~= "table" then error("array: a table is needed, not " .. type(t), 2) end
  lists[t] = true
  return t
end
local calls = setmetatable({}, { __mode = "k" })
local function is_list(t) return calls[t] and "call" or lists[t] == true end

local function settle(handle)
  local call = calls[handle]
  if not call then error("await: this is not a call under way, but a " .. type(handle), 3) end
  if call.ok == nil then call.ok, call.value = host(wait, call.id) end
  if not call.ok then error(call.value, 0) end
  return call.value
end

local function await_one(handle) return (settle(handle)) end
local function unawaited() error("this is a call under way, not its result: write :await() first", 2) end
local Call = sealed {
  __name = "call", __len = unawaited, __concat = unawaited, __pairs = unawaited, __call = unawaited, __add = unawaited,
  __sub = unawaited, __mul = unawaited, __div = unawaited, __lt = unawaited, __le = unawaited,
  __index = function(_, key)
    if key == "await" then return await_one end
    error("this is a call under way, not its result: write :await() before ." .. tostring(key), 2)
  end,
  __newindex = unawaited,
}

local function caller(space, name, owner)
  return function(...)
    local from = 1
    if owner and rawequal((...), owner) then from = 2 end  -- server:tool(...) as well as server.tool(...)
    local id, why = host(begin, space, name, pack(select(from, ...)))
    if not id then error(why, 2) end
    local handle = setmetatable({}, Call)
    calls[handle] = { id = id }
    return handle
  end
end

local function bind(space, names)
  if space == "" then
    for _, name in ipairs(names) do _G[name] = caller("", name) end
    return
  end
  local library = type(_G[space]) == "table" and _G[space] or {}
  local tools = {}
  for _, name in ipairs(names) do tools[name] = caller(space, name, tools) end
  _G[space] = setmetatable(tools, sealed {
    __index = function(_, name)
      if library[name] ~= nil or type(name) ~= "string" then return library[name] end
      return caller(space, name, tools)  -- the host knows the nearest names
    end,
  })
end

local function await(...)
  local handles = pack(...)
  if handles.n == 1 then return (settle(handles[1])) end
  local values = { n = handles.n }
  for i = 1, handles.n do values[i] = settle(handles[i]) end
  return unpack(values, 1, values.n)
end

local function await_all(handles)
  if type(handles) ~= "table" then error("await_all: a table of calls is needed", 2) end
  local values = array {}
  for i = 1, #handles do
    local value = settle(handles[i])
    if value == nil then value = null end
    values[i] = value
  end
  return values
end

local function print(...)
  local shown = pack(...)
  for i = 1, shown.n do
    local value = shown[i]
    local text
    if type(value) == "table" and getmetatable(value) == nil then text = host(show, value) end
    shown[i] = text or tostring(value)
  end
  host(say, concat(shown, "\t", 1, shown.n) .. "\n")
end

local function result(...)
  local ok, why = host(answer, pack(...))
  if not ok then error(why, 0) end
end

local function store(key, value)
  if type(key) ~= "string" then error("store: the key must be a string, not " .. type(key), 2) end
  local ok, why = host(keep, key, value)
  if not ok then error(why, 2) end
end

local function load(key, default)
  if type(key) ~= "string" then error("load: the key must be a string, not " .. type(key), 2) end
  local ok, value = host(recall, key)
  if not ok then error(value, 2) end
  if value == nil then return default end
  return value
end

local function report(failure)
  local line
  for level = 2, 60 do
    local info = getinfo(level, "Sl")
    if not info then break end
    if info.short_src == "script" and info.currentline > 0 then line = info.currentline break end
  end
  local text
  if type(failure) ~= "string" then
    local metatable = getmetatable(failure)
    text = type(failure) == "table" and not metatable and host(show, failure) or tostring(failure)
  end
  return { text or failure, line }
end

local function begin_script()
  _G.null, _G.array, _G.await, _G.await_all, _G.print = null, array, await, await_all, print
  _G.result, _G.store, _G.load = result, store, load
end

local function run(chunk)
  leave()
  local ended = pack(xpcall(chunk, report))
  enter()
  return ended[1], ended
end

return bind, begin_script, run, is_list, null, array
"""
