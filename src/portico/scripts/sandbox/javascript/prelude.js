// What a script of JavaScript finds in its world besides the language. Runs in every fresh context before the script,
// and keeps its own copies of whatever it uses: a script may patch every prototype it likes, and only fools itself.
// Everything that crosses to the host is JSON text (a bare string would lose what follows a NUL). `host` never throws.
(function () {
  "use strict";
  const host = globalThis.host;
  delete globalThis.host;

  const { parse, stringify } = JSON;
  const { apply, defineProperty, getPrototypeOf, has } = Reflect;
  const { create, freeze } = Object;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { isSafeInteger } = Number;
  const [World, Ours, Text, Count] = [globalThis, Object.prototype, String, Number];
  const [Fail, Mistyped, Later, Dict, Bag, Secret] = [Error, TypeError, Promise, Map, Set, WeakSet];
  const [Pattern, Through] = [RegExp, Proxy];
  const { join } = Array.prototype;
  const eachOfMap = Map.prototype.forEach;
  const eachOfSet = Set.prototype.forEach;
  const know = WeakSet.prototype.has;
  const remember = WeakSet.prototype.add;

  // A long text that was put together is a tree of its parts to the engine, which its binding cannot read: joined anew.
  function tell(what, text) {
    return host(what, apply(join, [text], [""]));
  }

  // A structured stack trace would hand a script the functions of this file.
  defineProperty(Fail, "prepareStackTrace", { value: undefined, writable: false, configurable: false });

  const pending = create(null); // id of a call → how to settle its promise
  const refused = new Secret(); // errors that are failed calls
  const unsaid = new Secret(); // errors that are values JSON cannot say

  function define(name, value) {
    defineProperty(World, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
  }

  function unsayable(what) {
    const error = new Mistyped(what);
    apply(remember, unsaid, [error]);
    return error;
  }

  // Maps, sets and the like as JSON would have them; numbers beyond 2^53 as text, as nothing may be lost.
  function plain(key, value) {
    if (typeof value === "bigint") {
      const number = Count(value);
      return isSafeInteger(number) ? number : Text(value);
    }
    if (typeof value !== "object" || value === null || isArray(value)) return value;
    const kind = getPrototypeOf(value);
    if (kind === Ours || kind === null) return value;
    if (value instanceof Later) throw unsayable("a Promise is no value yet: await it first");
    if (value instanceof Dict) return ofMap(value);
    if (value instanceof Bag) {
      const items = [];
      apply(eachOfSet, value, [(item) => put(items, items.length, item)]);
      return items;
    }
    if (value instanceof Fail) return { name: value.name, message: value.message };
    if (value instanceof Pattern) return Text(value);
    if (isView(value) && has(value, "length")) {
      const items = [];
      for (let at = 0; at < value.length; at++) put(items, at, value[at]);
      return items;
    }
    return value;
  }

  // By definition, not by assignment: a script may have given prototypes setters, and even a `get` of descriptors.
  function put(into, key, value, enumerable = true) {
    defineProperty(into, key, { __proto__: null, value, writable: true, configurable: true, enumerable });
  }

  function ofMap(map) {
    const named = create(null);
    const pairs = [];
    let simple = true;
    apply(eachOfMap, map, [
      (value, key) => {
        if (typeof key === "string" || typeof key === "number") put(named, key, value);
        else simple = false;
        put(pairs, pairs.length, [key, value]);
      },
    ]);
    return simple ? named : pairs;
  }

  function encode(value) {
    if (value === undefined) return "null";
    if (typeof value === "function") throw unsayable("a function is no value: call it");
    const text = stringify(value, plain);
    if (text === undefined) throw unsayable(`a ${typeof value} is no value`);
    return text;
  }

  function shown(value) {
    if (typeof value === "string") return value;
    if (typeof value === "bigint") return Text(value) + "n";
    if (typeof value !== "object" || value === null) return Text(value);
    try {
      if (value instanceof Later) return "Promise {not awaited}";
      if (value instanceof Fail) return `${value.name}: ${value.message}`;
      return encode(value);
    } catch (error) {
      if (error instanceof Mistyped) return "[object that JSON cannot say]";
      throw error;
    }
  }

  function print(...values) {
    let line = "";
    for (let at = 0; at < values.length; at++) line += (at ? " " : "") + shown(values[at]);
    tell("print", stringify(line + "\n"));
  }

  function call(namespace, name, given) {
    const failed = new Fail(""); // made here, so that it knows the script's line
    return new Later((resolve, reject) => {
      let many = given.length;
      while (many && given[many - 1] === undefined) many--;
      let args = "";
      for (let at = 0; at < many; at++) args += (at ? "," : "") + encode(given[at]);
      const answer = parse(tell("call", `[${stringify(namespace)},${stringify(name)},[${args}]]`));
      if (typeof answer === "string") throw new Mistyped(answer);
      pending[answer] = { __proto__: null, resolve, reject, failed };
    });
  }

  function settle(id, ok, text) {
    const waiting = pending[id];
    if (waiting === undefined) return;
    delete pending[id];
    const value = parse(text);
    if (ok) return waiting.resolve(value);
    put(waiting.failed, "message", value, false);
    apply(remember, refused, [waiting.failed]);
    waiting.reject(waiting.failed);
  }

  function tool(namespace, name) {
    return freeze({ [name]: (...given) => call(namespace, name, given) }[name]);
  }

  // A name that is not bound is asked for all the same: the host knows which names are near.
  function server(namespace, names) {
    const bound = create(null);
    for (let at = 0; at < names.length; at++) bound[names[at]] = tool(namespace, names[at]);
    freeze(bound);
    return new Through(bound, {
      __proto__: null,
      get(_, name) {
        if (typeof name !== "string" || name in bound) return bound[name];
        return name === "then" || name === "toJSON" || has(Ours, name) ? undefined : tool(namespace, name);
      },
    });
  }

  function store(key, value) {
    const answer = parse(tell("store", `[${stringify(Text(key))},${encode(value)}]`));
    if (answer !== null) throw new Fail(answer);
  }

  function load(key, otherwise = null) {
    const text = tell("load", stringify(Text(key)));
    return text === "" ? otherwise : parse(text);
  }

  let answered = false;
  let answer;

  function result(value) {
    answered = true;
    answer = value;
    return value;
  }

  function described(error, kind) {
    let said = "it threw what cannot be shown";
    let stack = "";
    try {
      const bare = apply(know, refused, [error]) || apply(know, unsaid, [error]);
      if (error !== null && typeof error === "object" && (error instanceof Fail || has(error, "message"))) {
        said = bare ? Text(error.message) : `${error.name ?? "Error"}: ${error.message}`;
        if (typeof error.stack === "string") stack = error.stack;
      } else said = error === null ? "null" : shown(error);
      if (bare && kind === "runtime") kind = apply(know, refused, [error]) ? "call" : "value";
    } catch {} // a script's own getter threw
    return `{"kind":${stringify(kind)},"message":${stringify(said)},"stack":${stringify(stack)}}`;
  }

  async function start(script) {
    let value;
    try {
      value = await script();
      if (answered) value = await answer;
    } catch (error) {
      tell("failed", described(error, "runtime"));
      return;
    }
    try {
      value = encode(value);
    } catch (error) {
      tell("failed", described(error, "value"));
      return;
    }
    tell("done", value);
  }

  function bind(text) {
    const namespaces = parse(text);
    for (const namespace in namespaces) {
      const names = namespaces[namespace];
      if (namespace === "") for (let at = 0; at < names.length; at++) define(names[at], tool("", names[at]));
      else define(namespace, server(namespace, names));
    }
  }

  const console = {};
  for (const name of ["log", "info", "warn", "error", "debug", "trace", "dir", "table"]) console[name] = print;
  define("console", console);
  define("print", print);
  define("store", store);
  define("load", load);
  define("result", result);
  define("require", () => {
    throw new Fail("there are no modules here");
  });

  return (what, one, two, three) => {
    if (what === "bind") bind(one);
    else if (what === "start") start(one);
    else if (what === "settle") settle(one, two, three);
    else if (what === "where" && pending[one]) return apply(join, [pending[one].failed.stack], [""]);
  };
})();
