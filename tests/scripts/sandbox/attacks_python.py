"""Python scripts that try to break out or to wear the gateway down, each with the faults it may end
in.

"harmless" is a script that ends well and gets nothing; among faults, it may also end so. The tool
they may call is `calculator.add(a, b)`.
"""

from typing import Literal

Allowed = tuple[str, ...] | Literal["harmless"]

ATTACKS: tuple[tuple[str, str, Allowed], ...] = (
    (
        "a hundred thousand values stored",
        "for i in range(100000): store('k' + str(i), 1)",
        ("runtime", "time", "crash"),
    ),
    ("an endless loop", "while True: pass", ("time",)),
    (
        "an endless loop that catches everything",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        ("time",),
    ),
    (
        "an endless loop in a finally",
        "try:\n    while True: pass\nfinally:\n    while True: pass",
        ("time",),
    ),
    ("an endless sum in one call", "import itertools\nsum(itertools.count())", ("time",)),
    ("a sleep without end", "import time\ntime.sleep(10**9)", ("time",)),
    ("a sleep without end, awaited", "import asyncio\nawait asyncio.sleep(10**9)", ("time",)),
    ("a list without end", "x = []\nwhile True: x.append('a' * 1000)", ("memory", "time")),
    (
        "a dict without end",
        "x = {}\ni = 0\nwhile True:\n    x[i] = i\n    i += 1",
        ("memory", "time"),
    ),
    ("a string of a terabyte", "'a' * (1 << 40)", ("memory",)),
    ("a list of a billion", "[0] * (1 << 30)", ("memory",)),
    ("a join that multiplies", "x = 'a' * (1 << 20)\n','.join([x] * 1000000)", ("memory", "time")),
    ("a replace that multiplies", "('a' * 10000).replace('a', 'b' * 10000000)", ("memory",)),
    ("a format of a billion columns", "'%1000000000d' % 3", ("memory",)),
    (
        "memory caught and asked for again",
        "while True:\n    try: 'a' * (1 << 40)\n    except BaseException: pass",
        ("memory",),
    ),
    (
        "a list that doubles inside its own text",
        "x = 1\nwhile True:\n    x = [x, x]\n    y = str(x)",
        ("memory", "time"),
    ),
    ("recursion", "def f(): f()\nf()", ("recursion",)),
    (
        "recursion that catches its own end",
        "def f():\n    while True:\n        try: f()\n        except BaseException: pass\nf()",
        ("time", "recursion"),
    ),
    (
        "a hundred thousand lists in each other",
        "x = []\nfor i in range(100000): x = [x]\nx",
        ("value", "recursion"),
    ),
    ("a list in itself", "x = []\nx.append(x)\nx", ("value",)),
    ("a flood of output", "while True: print('x' * 1000)", ("output", "time")),
    ("a flood of single characters", "while True: print('x', end='')", ("output", "time")),
    (
        "a regular expression that explodes",
        "import re\nre.match('(a+)+$', 'a' * 50 + 'b')",
        "harmless",
    ),
    (
        "a regular expression with back references that explodes",
        "import re\nre.match(r'(a+)+\\1$', 'a' * 50 + 'b')",
        ("harmless", "runtime", "time"),
    ),
    ("a power tower", "9 ** 9 ** 9", ("memory", "time")),
    ("a square root of a huge number", "import math\nmath.isqrt(10 ** 5000000)", ("time",)),
    ("a power of a huge number", "pow(7, 10 ** 7)", ("time", "value", "memory")),
    (
        "a number that squares itself",
        "x = 10 ** 1000000\nwhile True: x = x * x",
        ("time", "memory"),
    ),
    ("the text of a huge number", "str(10 ** 3000000)", ("runtime", "time")),
    (
        "a decimal of ten million digits",
        "import decimal\ndecimal.getcontext().prec = 10 ** 7\ndecimal.Decimal(2).sqrt()",
        ("time", "memory", "value"),
    ),
    ("subclasses of object", "().__class__.__bases__[0].__subclasses__()", ("runtime",)),
    ("globals of a function", "(lambda: 0).__globals__", ("runtime",)),
    ("globals of a tool", "calculator.add.__globals__['os']", ("runtime",)),
    ("the function behind a tool", "calculator.add.__func__.__code__.co_consts", ("runtime",)),
    ("the class of a server", "type(calculator).__init__.__globals__", ("runtime",)),
    ("builtins", "__builtins__", ("runtime",)),
    ("__import__", "__import__('os').system('id')", ("runtime",)),
    ("importlib", "import importlib\nimportlib.import_module('os').system('id')", ("runtime",)),
    ("a shell", "import os\nos.system('id')", ("runtime",)),
    ("a process", "import subprocess\nsubprocess.run(['id'])", ("runtime",)),
    ("a fork", "import os\nwhile True: os.fork()", ("runtime",)),
    ("a signal to the gateway", "import os, signal\nos.kill(os.getppid(), 9)", ("runtime",)),
    ("foreign functions", "import ctypes\nctypes.string_at(0)", ("runtime",)),
    (
        "frames of a traceback",
        "try:\n    1 / 0\nexcept Exception as e:\n    frame = "
        "e.__traceback__.tb_frame\nframe.f_back.f_globals",
        ("runtime",),
    ),
    ("frames of a coroutine", "calculator.add(a=1, b=2).cr_frame.f_globals", ("runtime",)),
    ("a file", "open('/etc/passwd').read()", ("runtime",)),
    (
        "a file by pathlib",
        "from pathlib import Path\nPath('/etc/passwd').read_text()",
        ("runtime",),
    ),
    ("a directory", "from pathlib import Path\nlist(Path('/').iterdir())", ("runtime",)),
    (
        "a file written",
        "from pathlib import Path\nPath('portico-was-here').write_text('x')",
        ("runtime",),
    ),
    ("the environment", "import os\ndict(os.environ)", ("runtime",)),
    ("one variable of the environment", "import os\nos.getenv('HOME')", ("runtime",)),
    ("a socket", "import socket\nsocket.create_connection(('127.0.0.1', 80))", ("runtime",)),
    (
        "a connection by asyncio",
        "import asyncio\nawait asyncio.open_connection('127.0.0.1', 80)",
        ("runtime",),
    ),
    ("eval", "eval(\"open('/etc/passwd')\")", ("runtime",)),
    ("exec", "exec('import os; os.system(\"id\")')", ("runtime",)),
    (
        "source of ten thousand brackets",
        "eval('(' * 10000 + ')' * 10000)",
        ("syntax", "runtime", "recursion"),
    ),
    (
        "JSON of a million brackets",
        "import json\njson.loads('[' * 1000000)",
        ("runtime", "recursion"),
    ),
    (
        "calls to the host by hand",
        "await _portico_host('call', 'secret', 'read', '[]', '{}')",
        ("runtime",),
    ),
    ("an answer by hand that is no JSON", "_portico_host('result', '[NaN')", ("value",)),
    (
        "an answer by hand that is too deep",
        "_portico_host('result', '[' * 900 + ']' * 900)",
        ("value",),
    ),
    (
        "questions to the host without end",
        "while True:\n    try: load('x')\n    except BaseException: pass",
        ("runtime", "time", "call"),
    ),
    (
        "thousands of calls",
        "import asyncio\nawait asyncio.gather(*[calculator.add(a=i, b=1) for i in range(5000)])",
        ("call", "runtime", "time"),
    ),
    (
        "thousands of calls that nobody waits for",
        "for i in range(5000):\n    try: calculator.add(a=i, b=1)\n    except BaseException: pass",
        ("call", "runtime", "time"),
    ),
    (
        "calls that nobody waits for",
        "for i in range(10): calculator.add(a=i, b=1)\n'done'",
        "harmless",
    ),
    (
        "arguments of many megabytes, many times",
        "x = 'a' * (8 << 20)\nfor i in range(100): calculator.add(a=x, b=x)",
        ("memory", "time", "call", "runtime"),
    ),
    (
        "a store without end",
        "i = 0\nwhile True:\n    store('k' + str(i), 'a' * 1000000)\n    i += 1",
        ("runtime", "time"),
    ),
    ("an answer that is a function", "lambda: 0", ("value",)),
    ("an answer that is no number", "float('nan')", ("value",)),
    ("an answer that is a call in a list", "[[calculator.add(a=1, b=2)]]", ("value",)),
    (
        "a coroutine that answers with the next, without end",
        "async def f(): return [f][0]()\nf()",
        ("time", "recursion", "memory"),
    ),
    (
        "a generator without end",
        "def g():\n    while True: yield 'x' * 1000\nnext(g())",
        ("memory", "time"),
    ),
    ("the mean of too many", "statistics.mean(range(10**12))", ("memory", "time")),
    (
        "JSON with a default without end",
        "json.dumps({1}, default=lambda x: {1})",
        ("recursion", "runtime"),
    ),
    (
        "the definitions beside the script",
        "[_portico_asyncio.__dict__, asyncio.__globals__, io.StringIO.__globals__]",
        ("runtime", "value"),
    ),
    ("an answer of too many bytes", "'a' * (20 << 20)", ("output", "memory")),
    ("an error of many megabytes", "raise ValueError('a' * (8 << 20))", ("runtime", "memory")),
    ("an exit", "raise SystemExit", ("runtime",)),
    ("an interrupt", "raise KeyboardInterrupt", ("runtime",)),
)
