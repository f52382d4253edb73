"""What differs between two answers, after taking out what must differ. Pure.

Taken out: the path of the run's own sandbox and its port, what a question declares volatile, and,
between the two protocol eras only, the envelope the modern one puts around results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from tests.real_servers.catalogue import Raw

BLOT = "▒"
_ENVELOPE = ("resultType", "ttlMs", "cacheScope")
_SERVER_INFO = "io.modelcontextprotocol/serverInfo"
_PREFIXES = {
    "uri": "portico://backend/{server}/resource/",
    "uriTemplate": "portico://backend/{server}/resource/",
}


def normalize_answer(value: Any, places: Mapping[str, str], volatile: Iterable[str] = ()) -> Any:
    """`value` with this run's folder and port named instead of spelled out, and what is volatile
    blotted out."""
    patterns = [re.compile(pattern) for pattern in volatile]

    def settle(text: str) -> str:
        for place in ("sandbox", "port"):
            text = text.replace(places[place], f"{{{place}}}")
        for pattern in patterns:
            text = pattern.sub(BLOT, text)
        return text

    return _on_strings(value, settle)


def without_envelope(answer: Raw) -> Raw:
    """A result as both eras can say it."""
    result = answer.get("result")
    if not isinstance(result, dict):
        return answer
    kept = {key: value for key, value in cast(Raw, result).items() if key not in _ENVELOPE}
    meta = {
        key: value for key, value in (kept.pop("_meta", None) or {}).items() if key != _SERVER_INFO
    }
    return {**answer, "result": {**kept, **({"_meta": meta} if meta else {})}}


def inward(value: Any, server: str) -> Any:
    """Resource URIs of a result as the server wrote them, not as the gateway names them."""
    prefix = _PREFIXES["uri"].format(server=server)
    return _on_strings(value, lambda text: text.removeprefix(prefix))


def own_names(items: Iterable[Raw], server: str, key: str) -> list[Raw]:
    """Listed items under their server's own names; one that lacks the gateway's prefix is left as
    it is, to be seen."""
    prefix = _PREFIXES.get(key, "{server}__").format(server=server)
    return [{**item, key: item[key].removeprefix(prefix)} for item in items]


def by_key(items: Iterable[Raw], key: str) -> dict[str, Raw]:
    """Listed items by what identifies them."""
    return {item[key]: item for item in items}


def differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return where two JSON values differ, and how; none when they are equal."""
    if isinstance(expected, dict) and isinstance(found, dict):
        first, second = cast(Raw, expected), cast(Raw, found)
        reported = [f"{path}.{key}: missing" for key in first if key not in second]
        reported += [
            f"{path}.{key}: added ({_short(second[key])})" for key in second if key not in first
        ]
        return reported + [
            d
            for key in first
            if key in second
            for d in differences(first[key], second[key], f"{path}.{key}")
        ]
    if (
        isinstance(expected, list)
        and isinstance(found, list)
        and len(cast("list[Any]", expected)) == len(found)
    ):
        pairs = zip(cast("list[Any]", expected), cast("list[Any]", found), strict=True)
        return [
            d for number, (a, b) in enumerate(pairs) for d in differences(a, b, f"{path}[{number}]")
        ]
    # True == 1 and 1 == 1.0 in Python; on the wire they are different.
    if type(expected) is type(found) and expected == found:
        return []
    return [f"{path}: {_short(expected)} became {_short(found)}"]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _on_strings(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _on_strings(item, change) for key, item in cast(Raw, value).items()}
    return (
        [_on_strings(item, change) for item in cast("list[Any]", value)]
        if isinstance(value, list)
        else value
    )
