"""What a refusal of a server says about signing in. Pure."""

import re
from dataclasses import dataclass

_PARAMETER = re.compile(
    r'(?<![\w-])([A-Za-z_][\w-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))'
)
MAX_CHALLENGE_CHARS = 8_192


@dataclass(frozen=True)
class Challenge:
    """The parts of a `WWW-Authenticate` header that matter here (RFC 6750, RFC 9728)."""

    is_bearer: bool = False
    is_dpop: bool = False
    """Whether tokens have to be bound to a key (RFC 9449), and there is no choice."""
    error: str = ""
    scope: str | None = None
    resource_metadata: str | None = None


NO_CHALLENGE = Challenge()


def parse_challenge(header: str) -> Challenge:
    text = header[:MAX_CHALLENGE_CHARS]
    values: dict[str, str] = {}
    for name, quoted, plain in _PARAMETER.findall(text):
        values.setdefault(name.lower(), re.sub(r"\\(.)", r"\1", quoted) or plain)
    is_bearer = re.search(r"(?:^|[\s,])bearer(?:$|[\s,])", text, re.IGNORECASE) is not None
    offers_dpop = re.search(r"(?:^|[\s,])dpop(?:$|[\s,])", text, re.IGNORECASE) is not None
    return Challenge(
        is_bearer=is_bearer,
        is_dpop=offers_dpop and not is_bearer,
        error=values.get("error", ""),
        scope=values.get("scope"),
        resource_metadata=values.get("resource_metadata"),
    )
