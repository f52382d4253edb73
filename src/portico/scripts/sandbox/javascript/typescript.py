"""TypeScript to JavaScript: Sucrase strips the types and keeps the lines. Nothing is type-checked.

Sucrase runs in an engine of its own that outlives the scripts and never runs one: a script is only
text to it.
"""

import os.path
import re

import orjson

from portico.scripts.sandbox.javascript import quickjs

MEMORY_BYTES = 128 * 1024**2
STACK_BYTES = 2 * 1024**2
_ERROR_POSITION = re.compile(
    r"^(?:Error: )?(?:Error transforming [^:]*: )?(.*) \((\d+):\d+\)$", re.DOTALL
)
# Frozen, so that no script's text can make Sucrase leave state behind for the next one.
_STRIP_SOURCE = """
for (const one of [Object, Array, String, Number, Map, Set, Function, RegExp, Error]) {
  Object.freeze(one); Object.freeze(one.prototype);
}
(text) => {
  try {
    const options = {transforms: ["typescript"], disableESTransforms: true};
    return JSON.stringify({code: sucrase.transform(JSON.parse(text), options).code});
  } catch (error) {
    if (!(error instanceof SyntaxError || error.constructor === Error)) throw error;
    return JSON.stringify({error: String(error && error.message)});
  }
}
"""


class NotTypeScript(Exception):
    """The code does not parse; the text says why, `line` where."""

    def __init__(self, message: str, line: int | None) -> None:
        super().__init__(message)
        self.line = line


class TypeStripper:
    """Strips types. The library is read at creation and loaded by the first script."""

    def __init__(self) -> None:
        with open(
            os.path.join(os.path.dirname(__file__), "vendored", "sucrase.js"), encoding="utf-8"
        ) as source:
            self._library = source.read()
        self._strip: quickjs.JsFunction | None = None

    def strip_types(self, code: str) -> str:
        """Return the code without types, every line in its place; raises NotTypeScript."""
        if self._strip is None:
            self._strip = self._load_sucrase()
        try:
            answer = orjson.loads(self._strip(orjson.dumps(code).decode()))
        except (quickjs.JSException, TypeError, ValueError) as error:
            self._strip = None  # its state is unknown, so it is not used again
            raise NotTypeScript(str(error).partition("\n")[0], None) from None
        if "error" in answer:
            position = _ERROR_POSITION.match(answer["error"])
            if position is None:
                raise NotTypeScript(f"SyntaxError: {answer['error']}", None)
            raise NotTypeScript(f"SyntaxError: {position[1]}", int(position[2]))
        return answer["code"]

    def _load_sucrase(self) -> quickjs.JsFunction:
        context = quickjs.create_context()
        context.set_memory_limit(MEMORY_BYTES)
        context.set_max_stack_size(STACK_BYTES)
        context.eval(self._library)
        return context.eval(_STRIP_SOURCE)
