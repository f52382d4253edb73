// Functions available to a JavaScript script. Runs in every fresh context before the script, and keeps its
// own copies of everything it uses, so that a script which patches prototypes affects only itself.
// Values pass to the host as JSON text (a bare string would be cut at a NUL). `host` never throws.
(function () {
  "use strict";
  const host = globalThis.host;
  delete globalThis.host;

  const { parse, stringify } = JSON;
  const { apply, defineProperty, getPrototypeOf, has } = Reflect;
  const { create, freeze, keys } = Object;
  const { isArray } = Array;
  const { isView } = ArrayBuffer;
  const { isSafeInteger } = Number;
  const [GlobalScope, ObjectPrototype, StringOf, NumberOf] = [globalThis, Object.prototype, String, Number];
  const [ErrorType, TypeErrorType, PromiseType] = [Error, TypeError, Promise];
  const [MapType, SetType, WeakSetType, DateType] = [Map, Set, WeakSet, Date];
  const [RegExpType, ProxyType] = [RegExp, Proxy];
  const { join } = Array.prototype;
  const { then: promiseThen } = Promise.prototype;
  const eachOfMap = Map.prototype.forEach;
  const eachOfSet = Set.prototype.forEach;
  const { get: mapGet, set: mapSet } = Map.prototype;
  const setAdd = Set.prototype.add;
  const weakSetHas = WeakSet.prototype.has;
  const weakSetAdd = WeakSet.prototype.add;

  // A concatenated long text is a tree of its parts to the engine, which the binding cannot read; join flattens it.
  function callHost(what, text) {
    return host(what, apply(join, [text], [""]));
  }

  // A structured stack trace would give a script access to the functions of this file.
  defineProperty(ErrorType, "prepareStackTrace", { value: undefined, writable: false, configurable: false });

  const pending = create(null); // id of a call → resolve and reject of its promise
  const callErrors = new WeakSetType(); // errors of failed calls
  const valueErrors = new WeakSetType(); // errors for values that are not JSON

  function define(name, value) {
    setProperty(GlobalScope, name, value, false);
  }

  function makeValueError(what) {
    const error = new TypeErrorType(what);
    apply(weakSetAdd, valueErrors, [error]);
    return error;
  }

  // Convert maps, sets and similar to JSON values; numbers beyond 2^53 become text, to lose nothing.
  function toJsonValue(key, value) {
    if (typeof value === "bigint") {
      const number = NumberOf(value);
      return isSafeInteger(number) ? number : StringOf(value);
    }
    if (typeof value !== "object" || value === null || isArray(value)) return value;
    const kind = getPrototypeOf(value);
    if (kind === ObjectPrototype || kind === null) return value;
    if (value instanceof PromiseType) throw makeValueError("a Promise is no value yet: await it first");
    if (value instanceof MapType) return mapToJson(value);
    if (value instanceof SetType) {
      const items = [];
      apply(eachOfSet, value, [(item) => setProperty(items, items.length, item)]);
      return items;
    }
    if (value instanceof ErrorType) return { name: value.name, message: value.message };
    if (value instanceof RegExpType) return StringOf(value);
    if (isView(value) && has(value, "length")) {
      const items = [];
      for (let at = 0; at < value.length; at++) setProperty(items, at, value[at]);
      return items;
    }
    return value;
  }

  // Defined, not assigned: a script may have added setters to prototypes, and even a `get` to descriptors.
  function setProperty(into, key, value, enumerable = true) {
    defineProperty(into, key, { __proto__: null, value, writable: true, configurable: true, enumerable });
  }

  function mapToJson(map) {
    const named = create(null);
    const pairs = [];
    let simple = true;
    apply(eachOfMap, map, [
      (value, key) => {
        if (typeof key === "string" || typeof key === "number") setProperty(named, key, value);
        else simple = false;
        setProperty(pairs, pairs.length, [key, value]);
      },
    ]);
    return simple ? named : pairs;
  }

  function encode(value) {
    if (value === undefined) return "null";
    if (typeof value === "function") throw makeValueError("a function is no value: call it");
    const text = stringify(value, toJsonValue);
    if (text === undefined) throw makeValueError(`a ${typeof value} is no value`);
    return text;
  }

  function formatValue(value) {
    if (typeof value === "string") return value;
    if (typeof value === "bigint") return StringOf(value) + "n";
    if (typeof value !== "object" || value === null) return StringOf(value);
    try {
      if (value instanceof PromiseType) return "Promise {not awaited}";
      if (value instanceof ErrorType) return `${value.name}: ${value.message}`;
      return encode(value);
    } catch (error) {
      if (error instanceof TypeErrorType) return "[object that JSON cannot say]";
      throw error;
    }
  }

  function print(...values) {
    let line = "";
    for (let at = 0; at < values.length; at++) line += (at ? " " : "") + formatValue(values[at]);
    callHost("print", stringify(line + "\n"));
  }

  // `calls.length` would be undefined in silence: what a promise lacks is an error before it is awaited.
  const unawaited = freeze({
    __proto__: null,
    get(promise, name) {
      const value = name === "then" ? promiseThen : promise[name];
      if (typeof value === "function") return (...passed) => apply(value, promise, passed);
      if (value !== undefined || typeof name !== "string" || name === "toJSON") return value;
      throw new TypeErrorType(`a Promise has no ${name}: await the call first`);
    },
  });

  function call(namespace, name, passed) {
    const promise = request("call", () => {
      let count = passed.length;
      while (count && passed[count - 1] === undefined) count--;
      let args = "";
      for (let at = 0; at < count; at++) args += (at ? "," : "") + encode(passed[at]);
      return `[${stringify(namespace)},${stringify(name)},[${args}]]`;
    });
    return new ProxyType(promise, unawaited);
  }

  // Ask the host for what it answers later; `build` returns the text, and what it throws rejects.
  function request(what, build) {
    const failed = new ErrorType(""); // created here, so that its stack has the script's line
    return new PromiseType((resolve, reject) => {
      const answer = parse(callHost(what, build()));
      if (typeof answer === "string") throw new TypeErrorType(answer);
      pending[answer] = { __proto__: null, resolve, reject, failed };
    });
  }

  const timers = create(null); // id of a timer that is not cleared → true
  let timerCount = 0;

  function startTimer(callback, milliseconds, passed, repeats) {
    if (typeof callback !== "function") throw new TypeErrorType("a timer needs a function");
    const id = ++timerCount;
    timers[id] = true;
    runTimer(id, callback, NumberOf(milliseconds) || 0, passed, repeats);
    return id;
  }

  async function runTimer(id, callback, milliseconds, passed, repeats) {
    try {
      do {
        await request("sleep", () => stringify(milliseconds / 1000));
        if (!timers[id]) return;
        if (!repeats) delete timers[id];
        apply(callback, undefined, passed);
      } while (timers[id]);
    } catch (error) {
      callHost("failed", describeError(error, "runtime"));
    }
  }

  function clone(value, seen) {
    if (typeof value === "function" || typeof value === "symbol") throw new TypeErrorType(`a ${typeof value} cannot be cloned`);
    if (typeof value !== "object" || value === null) return value;
    const known = apply(mapGet, seen, [value]);
    if (known !== undefined) return known;
    if (value instanceof DateType) return new DateType(+value);
    const keep = (copy) => (apply(mapSet, seen, [value, copy]), copy);
    if (value instanceof MapType) {
      const copy = keep(new MapType());
      apply(eachOfMap, value, [(item, key) => apply(mapSet, copy, [clone(key, seen), clone(item, seen)])]);
      return copy;
    }
    if (value instanceof SetType) {
      const copy = keep(new SetType());
      apply(eachOfSet, value, [(item) => apply(setAdd, copy, [clone(item, seen)])]);
      return copy;
    }
    const copy = keep(isArray(value) ? [] : {});
    const names = keys(value);
    for (let at = 0; at < names.length; at++) setProperty(copy, names[at], clone(value[names[at]], seen));
    return copy;
  }

  function settle(id, ok, text) {
    const pendingCall = pending[id];
    if (pendingCall === undefined) return;
    delete pending[id];
    const value = parse(text);
    if (ok) return pendingCall.resolve(value);
    setProperty(pendingCall.failed, "message", value, false);
    apply(weakSetAdd, callErrors, [pendingCall.failed]);
    pendingCall.reject(pendingCall.failed);
  }

  function tool(namespace, name) {
    return freeze({ [name]: (...passed) => call(namespace, name, passed) }[name]);
  }

  // An unbound name is called too: the error of the host suggests similar names.
  function server(namespace, names) {
    const bound = create(null);
    for (let at = 0; at < names.length; at++) bound[names[at]] = tool(namespace, names[at]);
    freeze(bound);
    return new ProxyType(bound, {
      __proto__: null,
      get(_, name) {
        if (typeof name !== "string" || name in bound) return bound[name];
        return name === "then" || name === "toJSON" || has(ObjectPrototype, name) ? undefined : tool(namespace, name);
      },
    });
  }

  function store(key, value) {
    const answer = parse(callHost("store", `[${stringify(StringOf(key))},${encode(value)}]`));
    if (answer !== null) throw new ErrorType(answer);
  }

  function load(key, fallback = null) {
    const text = callHost("load", stringify(StringOf(key)));
    return text === "" ? fallback : parse(text);
  }

  let hasResult = false;
  let answer;

  function result(value) {
    hasResult = true;
    answer = value;
    return value;
  }

  function describeError(error, kind) {
    let message = "it threw what cannot be shown";
    let stack = "";
    try {
      const isOwnError = apply(weakSetHas, callErrors, [error]) || apply(weakSetHas, valueErrors, [error]);
      if (error !== null && typeof error === "object" && (error instanceof ErrorType || has(error, "message"))) {
        message = isOwnError ? StringOf(error.message) : `${error.name ?? "Error"}: ${error.message}`;
        if (typeof error.stack === "string") stack = error.stack;
      } else message = error === null ? "null" : formatValue(error);
      if (isOwnError && kind === "runtime") kind = apply(weakSetHas, callErrors, [error]) ? "call" : "value";
    } catch {} // a getter of the script threw
    return `{"kind":${stringify(kind)},"message":${stringify(message)},"stack":${stringify(stack)}}`;
  }

  function isPromise(value) {
    return typeof value === "object" && value !== null && value instanceof PromiseType;
  }

  // Await the promises that an answer has as its items.
  async function awaitItems(value) {
    if (typeof value !== "object" || value === null) return value;
    if (!isArray(value) && getPrototypeOf(value) !== ObjectPrototype) return value;
    const names = isArray(value) ? null : keys(value);
    const count = (names ?? value).length;
    let at = 0;
    while (at < count && !isPromise(value[names ? names[at] : at])) at++;
    if (at === count) return value;
    const copy = names ? {} : [];
    for (at = 0; at < count; at++) {
      const name = names ? names[at] : at;
      const item = value[name];
      setProperty(copy, name, isPromise(item) ? await item : item);
    }
    return copy;
  }

  async function start(script) {
    let value;
    try {
      value = await script();
      if (hasResult) value = await answer;
      else if (typeof value === "function" && value === module.exports) value = await value();
      value = await awaitItems(value);
    } catch (error) {
      callHost("failed", describeError(error, "runtime"));
      return;
    }
    try {
      value = encode(value);
    } catch (error) {
      callHost("failed", describeError(error, "value"));
      return;
    }
    callHost("done", value);
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
    throw new ErrorType("there are no modules here");
  });
  const module = { exports: {} };
  define("module", module);
  define("exports", module.exports);
  define("setTimeout", (callback, milliseconds, ...passed) => startTimer(callback, milliseconds, passed, false));
  define("setInterval", (callback, milliseconds, ...passed) => startTimer(callback, milliseconds, passed, true));
  define("setImmediate", (callback, ...passed) => startTimer(callback, 0, passed, false));
  for (const name of ["clearTimeout", "clearInterval", "clearImmediate"]) define(name, (id) => void delete timers[id]);
  define("structuredClone", (value) => clone(value, new MapType()));
  // The answer of a tool is parsed already.
  const parseText = (text, reviver) => (typeof text === "object" && text !== null ? text : parse(text, reviver));
  setProperty(JSON, "parse", parseText, false);

  return (what, one, two, three) => {
    if (what === "bind") bind(one);
    else if (what === "start") start(one);
    else if (what === "settle") settle(one, two, three);
    else if (what === "where" && pending[one]) return apply(join, [pending[one].failed.stack], [""]);
  };
})();
