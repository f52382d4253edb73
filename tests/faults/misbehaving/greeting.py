"""Scripts that strike before anybody has called anything: at the start, at the greeting, and at the
end."""

from __future__ import annotations

import signal
import subprocess
import sys

from tests.faults.misbehaving.healthy import CAPABILITIES, GREETINGS, INFO, LEGACY, MODERN
from tests.faults.misbehaving.steps import (
    call,
    die,
    encode,
    freeze,
    hang,
    kill,
    line,
    raw,
    say,
    stderr,
    strikes,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.misbehaving.steps import Step, Strike


@strikes("start", "dies_before_greeting")
def dies_at_start(strike: Strike) -> Iterator[Step]:
    yield stderr(b"fatal: EXAMPLE_KEY is not set\n")
    yield die(3)


@strikes("greeting", "dies_before_greeting")
def dies(strike: Strike) -> Iterator[Step]:
    yield die(3)


@strikes("greeting")
def dies_during_greeting(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.answer)[:20])
    yield die(5)


@strikes("greeting")
def killed_during_greeting(strike: Strike) -> Iterator[Step]:
    yield kill()


@strikes("greeting")
def dies_after_greeting(strike: Strike) -> Iterator[Step]:
    yield say(strike.answer if strike.result else strike.refusing(-32601, "Method not found"))
    if strike.result:
        yield die(6)


@strikes("greeting")
def hangs_before_greeting(strike: Strike) -> Iterator[Step]:
    yield hang()


@strikes("start")
def never_reads(strike: Strike) -> Iterator[Step]:
    yield freeze()


@strikes("greeting")
def freezes_after_greeting(strike: Strike) -> Iterator[Step]:
    yield say(strike.answer if strike.result else strike.refusing(-32601, "Method not found"))
    if strike.result:
        yield freeze()


@strikes("greeting")
def garbage_for_a_greeting(strike: Strike) -> Iterator[Step]:
    for data in (
        b"Welcome!",
        b"\x1b[32mready\x1b[0m",
        b"\xff\xfe\x00",
        b'{"level": "info"}',
        b"[1]",
        b"null",
    ):
        yield line(data)
    yield hang()


@strikes("greeting")
def half_a_greeting(strike: Strike) -> Iterator[Step]:
    yield raw(encode(strike.answer)[:-5])
    yield hang()


@strikes("greeting")
def greeting_refused(strike: Strike) -> Iterator[Step]:
    yield say(strike.refusing(-32000, "no licence"))


@strikes("greeting")
def greeting_without_result(strike: Strike) -> Iterator[Step]:
    yield say(strike.saying(None))


@strikes("greeting")
def greeting_of_wrong_types(strike: Strike) -> Iterator[Step]:
    if strike.result is None:
        yield say(strike.refusing(-32601, None))
    else:
        wrong = {
            "protocolVersion": 7,
            "capabilities": [],
            "serverInfo": "me",
            "instructions": {},
            "_meta": 3,
        }
        yield say(strike.saying({**strike.result, **wrong}))


@strikes("greeting")
def unknown_version(strike: Strike) -> Iterator[Step]:
    if strike.request["method"] == "server/discover":
        yield say(strike.refusing(-32601, "Method not found"))
    else:
        yield say(
            strike.saying(
                {"protocolVersion": "2031-01-01", "capabilities": CAPABILITIES, "serverInfo": INFO}
            )
        )


@strikes("greeting")
def knows_no_version_of_ours(strike: Strike) -> Iterator[Step]:
    if strike.request["method"] == "server/discover":
        yield say(strike.saying({"supportedVersions": ["1999-01-01", None, 7], "capabilities": {}}))
    else:
        yield say(
            strike.refusing(
                -32022, "Unsupported protocol version", data={"supported": ["1999-01-01"]}
            )
        )


@strikes("every")
def era_lie(strike: Strike) -> Iterator[Step]:
    method = strike.request["method"]
    if method == "server/discover":
        yield say(
            strike.saying(
                {
                    "supportedVersions": [MODERN],
                    "capabilities": CAPABILITIES,
                    "resultType": "complete",
                }
            )
        )
    elif method == "initialize":
        yield say(strike.refusing(-32600, "already modern"))
    else:
        yield say(strike.refusing(-32600, "Bad Request: Server not initialized"))


@strikes("every")
def echoes_a_modern_version(strike: Strike) -> Iterator[Step]:
    if strike.request["method"] in GREETINGS:
        version = MODERN if strike.request["method"] == "initialize" else LEGACY
        yield say(
            strike.saying(
                {"protocolVersion": version, "capabilities": CAPABILITIES, "serverInfo": INFO}
            )
        )
    else:
        yield say(strike.answer)


# how a process ends


_SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(120)"]
_children: list[object] = []


@strikes("end", "ignores_stdin_close", "ignores_sigterm")
def lives_on(strike: Strike) -> Iterator[Step]:
    yield freeze()


@strikes("start")
def ignores_sigterm(strike: Strike) -> Iterator[Step]:
    yield call(lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))


@strikes("start")
def leaves_a_child(strike: Strike) -> Iterator[Step]:
    quiet = subprocess.DEVNULL
    yield call(
        lambda: _children.append(
            subprocess.Popen(_SLEEPER, stdin=quiet, stdout=quiet, stderr=quiet)
        )
    )


@strikes("start")
def leaves_a_child_on_its_pipes(strike: Strike) -> Iterator[Step]:
    yield call(lambda: _children.append(subprocess.Popen(_SLEEPER)))


@strikes("start")
def leaves_a_deaf_child(strike: Strike) -> Iterator[Step]:
    deaf = _SLEEPER[-1].replace("time;", "time, signal; signal.signal(15, 1);")
    yield call(lambda: _children.append(subprocess.Popen([*_SLEEPER[:-1], deaf])))
