-- The Lua side of a script: functions it can use. Only this code can reach the host's functions.
--
-- Lua's memory limit is enforced by the allocator, and lupa moves values between the languages
-- unprotected: reaching the limit there would end the process. So `host` lifts the limit for the
-- transfer only (`enter`) and restores it (`leave`); the script's next allocation then fails inside
-- Lua, as it should. `enter` is called with as many arguments as the function itself, so that it has
-- already grown the stack that the function needs.
local enter, leave, begin_call, wait_for_call, print_text, encode_value, store_value, load_value,
      set_result, decode_text = ...
local error, type, select, tostring, next, pairs = error, type, select, tostring, next, pairs
local setmetatable, getmetatable = setmetatable, getmetatable
local rawequal, rawget, rawset, ipairs, xpcall = rawequal, rawget, rawset, ipairs, xpcall
local pack, unpack, concat, getinfo = table.pack, table.unpack, table.concat, debug.getinfo
local string_library = string

local function leave_with(...) leave() return ... end
local function host(f, a, b, c) enter(nil, nil, nil) return leave_with(f(a, b, c)) end

-- Remove everything that reaches outside of the script.
for _, name in ipairs { "python", "io", "require", "package", "debug", "dofile", "loadfile",
                        "load", "collectgarbage", "warn", "print" } do
  _G[name] = nil
end
string.dump = nil
os = { time = os.time, clock = os.clock, date = os.date, difftime = os.difftime }
getmetatable("").__metatable = false

function _G.setmetatable(object, metatable)
  -- A finalizer would run after the script has ended.
  if type(metatable) == "table" and rawget(metatable, "__gc") ~= nil then
    error("__gc is not available", 2)
  end
  return setmetatable(object, metatable)
end

local function seal(metatable) metatable.__metatable = false return metatable end

-- Values of JSON that Lua lacks: null in a list, and an empty list.
local null = setmetatable({ ["\0null"] = true }, seal {
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

local function await_call(handle)
  local call = calls[handle]
  if not call then error("await: this is not a call under way, but a " .. type(handle), 3) end
  if call.ok == nil then call.ok, call.value = host(wait_for_call, call.id) end
  if not call.ok then error(call.value, 0) end
  return call.value
end

local function await_one(handle) return (await_call(handle)) end
local function value_of(value)
  if calls[value] then return (await_call(value)) end
  return value
end

-- Await a value that is a call, and calls that are fields of it.
local function settle(value)
  value = value_of(value)
  if type(value) == "table" then
    for key, field in next, value do
      if calls[field] then rawset(value, key, (await_call(field))) end
    end
  end
  return value
end
local function settle_all(...)
  local values = pack(...)
  for i = 1, values.n do values[i] = settle(values[i]) end
  return unpack(values, 1, values.n)
end

-- A call that was not awaited is awaited by its first use.
local Call = seal {
  __name = "call",
  __len = function(a) return #value_of(a) end,
  __concat = function(a, b) return value_of(a) .. value_of(b) end,
  __add = function(a, b) return value_of(a) + value_of(b) end,
  __sub = function(a, b) return value_of(a) - value_of(b) end,
  __mul = function(a, b) return value_of(a) * value_of(b) end,
  __div = function(a, b) return value_of(a) / value_of(b) end,
  __lt = function(a, b) return value_of(a) < value_of(b) end,
  __le = function(a, b) return value_of(a) <= value_of(b) end,
  __tostring = function(a) return tostring(value_of(a)) end,
  __pairs = function(a) return pairs(value_of(a)) end,
  __newindex = function(a, key, value) value_of(a)[key] = value end,
  __call = function() error("this is a call under way, not a function", 2) end,
  __index = function(a, key)
    if key == "await" then return await_one end
    local value = value_of(a)
    if type(value) ~= "string" then return value[key] end
    local method = string_library[key]
    return method and function(_, ...) return method(value, ...) end
  end,
}

local function make_function(namespace, name, owner)
  return function(...)
    local first = 1
    -- server:tool(...) works like server.tool(...)
    if owner and rawequal((...), owner) then first = 2 end
    local id, message = host(begin_call, namespace, name, pack(settle_all(select(first, ...))))
    if not id then error(message, 2) end
    local handle = setmetatable({}, Call)
    calls[handle] = { id = id }
    return handle
  end
end

local json = { null = null }
function json.encode(value)
  local text = host(encode_value, settle(value))
  if not text then error("json.encode: this value cannot be said in JSON", 2) end
  return text
end
function json.decode(text)
  text = value_of(text)
  if type(text) ~= "string" then return text end  -- the answer of a tool is decoded already
  local ok, value = host(decode_text, text)
  if not ok then error("json.decode: " .. value, 2) end
  return value
end
_G.json = json
local modules = { json = json, cjson = json, dkjson = json, ["cjson.safe"] = json }
function _G.require(name)
  if not modules[name] then error("there are no modules here but json: " .. tostring(name), 2) end
  return modules[name]
end

local function bind(namespace, names)
  if namespace == "" then
    for _, name in ipairs(names) do _G[name] = make_function("", name) end
    return
  end
  local library = type(_G[namespace]) == "table" and _G[namespace] or {}
  local tools = {}
  for _, name in ipairs(names) do tools[name] = make_function(namespace, name, tools) end
  _G[namespace] = setmetatable(tools, seal {
    __index = function(_, name)
      if library[name] ~= nil or type(name) ~= "string" then return library[name] end
      return make_function(namespace, name, tools)  -- the host's error suggests similar names
    end,
  })
  modules[namespace] = modules[namespace] or tools
end

local function await(...)
  local handles = pack(...)
  if handles.n == 1 then return (await_call(handles[1])) end
  local values = { n = handles.n }
  for i = 1, handles.n do values[i] = await_call(handles[i]) end
  return unpack(values, 1, values.n)
end

local function await_all(handles)
  if type(handles) ~= "table" then error("await_all: a table of calls is needed", 2) end
  local values = array {}
  for i = 1, #handles do
    local value = await_call(handles[i])
    if value == nil then value = null end
    values[i] = value
  end
  return values
end

local function print(...)
  local parts = pack(...)
  for i = 1, parts.n do
    local value = value_of(parts[i])
    local text
    if type(value) == "table" and getmetatable(value) == nil then
      text = host(encode_value, value)
    end
    parts[i] = text or tostring(value)
  end
  host(print_text, concat(parts, "\t", 1, parts.n) .. "\n")
end

local function result(...)
  local ok, message = host(set_result, pack(settle_all(...)))
  if not ok then error(message, 0) end
end

local function store(key, value)
  if type(key) ~= "string" then error("store: the key must be a string, not " .. type(key), 2) end
  local ok, message = host(store_value, key, settle(value))
  if not ok then error(message, 2) end
end

local function load(key, default)
  if type(key) ~= "string" then error("load: the key must be a string, not " .. type(key), 2) end
  local ok, value = host(load_value, key)
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
    text = type(failure) == "table" and not metatable and host(encode_value, failure)
      or tostring(failure)
  end
  return { text or failure, line }
end

local function begin_script()
  _G.null, _G.array, _G.await, _G.await_all, _G.print = null, array, await, await_all, print
  _G.result, _G.store, _G.load = result, store, load
end

local function run(chunk)
  leave()
  local outcome = pack(xpcall(function() return settle_all(chunk()) end, report))
  enter()
  return outcome[1], outcome
end

return bind, begin_script, run, is_list, null, array
