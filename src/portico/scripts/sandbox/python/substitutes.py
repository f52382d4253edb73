"""Modules that the sandbox's interpreter lacks, or has in part, as classes of the script's prelude.

They are plain definitions inside the sandbox, under the limits of the script. A task starts when it
is awaited (a tool call when it is made), and timeouts are not enforced: the script's own limit is.
"""

from collections.abc import Mapping

STANDARD_MODULES = frozenset(
    ("asyncio", "base64", "bisect", "collections", "contextlib", "copy", "csv", "dataclasses",
     "datetime", "decimal", "functools", "hashlib", "heapq", "io", "itertools", "json", "math",
     "operator", "pprint", "random", "re", "statistics", "string", "textwrap", "time", "tomllib",
     "typing")
)  # fmt: skip
"""The modules that a script can import."""
_ASYNCIO = """
import asyncio as _portico_asyncio

async def _portico_caught(coroutine):
    try:
        return await coroutine
    except Exception as error:
        return error

class _portico_lock:
    def __init__(self, value=1): pass
    def __enter__(self): return self
    def __exit__(self, kind, error, trace): return False

class asyncio:
    run = _portico_asyncio.run
    sleep = _portico_asyncio.sleep
    Semaphore = _portico_lock
    BoundedSemaphore = _portico_lock
    Lock = _portico_lock
    timeout = _portico_lock
    TimeoutError = TimeoutError

    def gather(*coroutines, return_exceptions=False):
        if return_exceptions:
            coroutines = [_portico_caught(coroutine) for coroutine in coroutines]
        return _portico_asyncio.gather(*coroutines)

    def create_task(coroutine, name=None): return coroutine
    def ensure_future(coroutine): return coroutine
    def as_completed(coroutines, timeout=None): return [*coroutines]
    async def wait_for(coroutine, timeout=None): return await coroutine
    def get_event_loop(): return asyncio
    def get_running_loop(): return asyncio
    run_until_complete = _portico_asyncio.run
"""
_JSON = """
def _portico_converted(value, default):
    kind = _portico_type(value).__name__
    if value is None or kind in ('str', 'int', 'float', 'bool'):
        return value
    if _portico_isinstance(value, _portico_dict):
        return {_portico_key(k): _portico_converted(v, default) for k, v in value.items()}
    if _portico_isinstance(value, (_portico_list, _portico_tuple)):
        return [_portico_converted(v, default) for v in value]
    return _portico_converted(default(value), default)

class json:
    JSONDecodeError = _portico_json.JSONDecodeError

    def loads(text, **options):
        if _portico_isinstance(text, (_portico_dict, _portico_list)):
            return text
        return _portico_json.loads(text)

    def dumps(value, default=None, **options):
        if default is not None:
            value = _portico_converted(value, default)
        return _portico_json.dumps(value, **options)
"""
_STATISTICS = """
import math as _portico_math

def _portico_sample(data, least=1):
    data = [*data]
    if len(data) < least:
        raise ValueError('at least ' + _portico_str(least) + ' data points are needed')
    return data

class statistics:
    StatisticsError = ValueError

    def mean(data):
        data = _portico_sample(data)
        return sum(data) / len(data)

    fmean = mean

    def median(data):
        data = _portico_sorted(_portico_sample(data))
        middle = len(data) // 2
        if len(data) % 2:
            return data[middle]
        return (data[middle - 1] + data[middle]) / 2

    def mode(data):
        counts = {}
        for value in _portico_sample(data):
            counts[value] = counts.get(value, 0) + 1
        return max(counts, key=lambda value: counts[value])

    def pvariance(data):
        data = _portico_sample(data)
        mean = sum(data) / len(data)
        return sum([(value - mean) ** 2 for value in data]) / len(data)

    def variance(data):
        data = _portico_sample(data, 2)
        return statistics.pvariance(data) * len(data) / (len(data) - 1)

    def stdev(data): return _portico_math.sqrt(statistics.variance(data))
    def pstdev(data): return _portico_math.sqrt(statistics.pvariance(data))
"""
_IO = """
class _portico_text_file:
    def __init__(self, text=''): self.text = text
    def __iter__(self): return iter(self.text.splitlines())
    def read(self): return self.text
    def getvalue(self): return self.text
    def readlines(self): return self.text.splitlines(True)
    def write(self, text): self.text += text

class io:
    StringIO = _portico_text_file
"""
_OPERATOR = """
class operator:
    def itemgetter(*keys):
        if len(keys) == 1:
            return lambda value: value[keys[0]]
        return lambda value: _portico_tuple([value[key] for key in keys])

    def attrgetter(name): return lambda value: _portico_getattr(value, name)
"""
_HEAPQ = """
class heapq:
    def nlargest(n, values, key=None): return _portico_sorted(values, key=key, reverse=True)[:n]
    def nsmallest(n, values, key=None): return _portico_sorted(values, key=key)[:n]
"""
_PPRINT = """
class pprint:
    def pprint(value): print(_portico_json.dumps(_portico_plain(value), indent=2))
    def pformat(value): return _portico_json.dumps(_portico_plain(value), indent=2)
"""
_RE = """
import re as _portico_re

class re:
    search = _portico_re.search
    match = _portico_re.match
    fullmatch = _portico_re.fullmatch
    findall = _portico_re.findall
    finditer = _portico_re.finditer
    split = _portico_re.split
    compile = _portico_re.compile
    escape = _portico_re.escape
    error = _portico_re.error
    PatternError = _portico_re.error
    Pattern = _portico_re.Pattern
    Match = _portico_re.Match
    NOFLAG = _portico_re.NOFLAG
    I = _portico_re.IGNORECASE
    IGNORECASE = _portico_re.IGNORECASE
    M = _portico_re.MULTILINE
    MULTILINE = _portico_re.MULTILINE
    S = _portico_re.DOTALL
    DOTALL = _portico_re.DOTALL
    A = _portico_re.ASCII
    ASCII = _portico_re.ASCII

    def sub(pattern, repl, string, count=0, flags=0):
        if _portico_isinstance(repl, _portico_str):
            return _portico_re.sub(pattern, repl, string, count=count, flags=flags)
        parts = []
        end = 0
        for number, found in enumerate(_portico_re.finditer(pattern, string, flags=flags)):
            if count and number >= count:
                break
            parts += [string[end:found.start()], repl(found)]
            end = found.end()
        return ''.join([*parts, string[end:]])
"""
_CONTEXTLIB = """
class _portico_suppress:
    def __init__(self, *kinds): self.kinds = kinds
    def __enter__(self): return None
    def __exit__(self, kind, error, trace): return _portico_isinstance(error, self.kinds)

class contextlib:
    suppress = _portico_suppress
"""
_STRING = """
class string:
    ascii_lowercase = 'abcdefghijklmnopqrstuvwxyz'
    ascii_uppercase = ascii_lowercase.upper()
    ascii_letters = ascii_lowercase + ascii_uppercase
    digits = '0123456789'
    hexdigits = digits + 'abcdefABCDEF'
    punctuation = '!"#$%&\\'()*+,-./:;<=>?@[\\\\]^_`{|}~'
    whitespace = ' \\t\\n\\r\\x0b\\x0c'
"""
_TEXTWRAP = """
class textwrap:
    def dedent(text):
        lines = [line if line.strip() else '' for line in text.split('\\n')]
        margin = min([len(line) - len(line.lstrip()) for line in lines if line], default=0)
        return '\\n'.join([line[margin:] for line in lines])

    def indent(text, prefix):
        lines = text.splitlines(True)
        return ''.join([prefix + line if line.strip() else line for line in lines])

    def wrap(text, width=70):
        lines = []
        for word in text.split():
            if lines and len(lines[-1]) + 1 + len(word) <= width:
                lines[-1] += ' ' + word
            else:
                lines.append(word)
        return lines

    def fill(text, width=70): return '\\n'.join(textwrap.wrap(text, width))

    def shorten(text, width, placeholder=' [...]'):
        text = ' '.join(text.split())
        if len(text) <= width:
            return text
        return (textwrap.wrap(text, width - len(placeholder)) or [''])[0] + placeholder
"""
_STATICMETHOD = """
class staticmethod:
    def __init__(self, function): self.function = function
    def __call__(self, *args, **kwargs): return self.function(*args, **kwargs)
"""
_CLASSMETHOD = """
class classmethod:
    def __init__(self, function, owner): self.function, self.owner = function, owner
    def __call__(self, *args, **kwargs): return self.function(self.owner, *args, **kwargs)
"""
SUBSTITUTES: Mapping[str, str] = {
    "asyncio": _ASYNCIO,
    "json": _JSON,
    "statistics": _STATISTICS,
    "io": _IO,
    "operator": _OPERATOR,
    "heapq": _HEAPQ,
    "pprint": _PPRINT,
    "re": _RE,
    "contextlib": _CONTEXTLIB,
    "string": _STRING,
    "textwrap": _TEXTWRAP,
    "staticmethod": _STATICMETHOD,
    "classmethod": _CLASSMETHOD,
}
"""What is missing or incomplete, by the name under which a script uses it."""
ADDED_NAMES: Mapping[tuple[str, str], str] = {
    ("dataclasses", "asdict"): "_portico_plain",
    ("collections", "OrderedDict"): "dict",
    ("typing", "TypedDict"): "dict",
    ("typing", "Protocol"): "None",
}
"""Names that a module of the interpreter lacks → what they are in the prelude."""
