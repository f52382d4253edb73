"""A scan of what a server says for what speaks to the model instead of describing something.

Patterns only: no model is asked, nothing leaves the machine, and the same text always gives the
same findings. It finds careless attacks, not all of them: what it does not find may still be one.
Every pattern has bounded gaps, a definition is read up to `MAX_CHARS`, and the work is pure.
"""

import base64
import binascii
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, cast
from urllib.parse import unquote

from portico.json_text import json_codec
from portico.unicode_normalization import normalize

MAX_CHARS = 64 * 1024
"""Characters of one definition that are read."""
MAX_FINDINGS = 12
MAX_EXCERPT = 120
MAX_DEPTH = 60
_MAX_REMEMBERED = 16_384
_TAG_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{1,8}\U000e007f")
"""Flags such as that of England are written with tag characters."""
_DIRECTION = "text in another direction"
_HIDDEN: Mapping[str, re.Pattern[str]] = {
    "tag characters": re.compile("[\U000e0000-\U000e007f]"),
    _DIRECTION: re.compile("[\u202a-\u202e\u2066-\u2069]"),
    "terminal codes": re.compile("\x1b[\\[\\]]|[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]"),
    "invisible characters": re.compile("[\u200b\u2060-\u2064\u180e\u034f\u115f\u1160\u3164\uffa0]"),
}
_INVISIBLE = re.compile("[\u00ad\u200b-\u200f\u2060-\u2064\ufeff\U000e0000-\U000e007f]")

_USER = r"(?:the |your |its )?(?:users?|humans?|person|customer)"
_REST = r"(?:[^.\n]|\.(?=\S)){0,80}?"
"""What may stand between two parts: the rest of a sentence, at most."""
_RULES = (
    r"(?:instructions?|rules|prompts?|guidelines|directives|restrictions|policies"
    r"|what you (?:were|have been) told)"
)
_TALK = (
    r"(?:(?:entire|complete|full|whole|all(?: of)?)(?: the)?(?: of the)?(?: user'?s?)? ?"
    r"(?:conversation|chat|dialogue|transcript|message history|history)"
    r"|(?:conversation|chat)(?: so far| history| transcript)|content of the conversation"
    r"|everything the user (?:says|said|writes|has said)"
    r"|user'?s last (?:\w+ )?messages?|exact text of the message"
    r"|(?:full|your|complete) (?:system )?(?:instructions|prompt) \(?"
    r"|system (?:prompt|message))"
)
_KEY_FILE = (
    r"(?:~?/?\.ssh/|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|/etc/(?:passwd|shadow)"
    r"|\.(?:npmrc|netrc|pgpass|git-credentials)\b|(?<![\w.])\.env\b|mcp\.json|wallet\.dat)"
)
_SECRET = (
    rf"(?:{_KEY_FILE}|(?-i:\$?\b(?:[A-Z][A-Z0-9]*_){{1,6}}(?:KEY|TOKEN|SECRET|PASSWORD)\b)"
    r"|(?:user'?s?|every|all|any|session) (?:\w+ )?(?:passwords?|api keys|keys|tokens?|secrets|"
    r"credentials|cookies)|secrets and credentials|card number|session cookies)"
)
_MOVE = (
    r"(?:send|transmit|pass|forward|include|attach|put|paste|append|copy|upload|post|hand|give|"
    r"store|reveal|submit|provide|contain|answer \w+ \w+ with|answer with|return)"
)
_PHRASES: Mapping[str, tuple[str, ...]] = {
    "sets other instructions aside": (
        rf"\b(?:ignore|disregard|forget|override)\b (?!any case){_REST}\b(?:previous|prior|above|"
        rf"earlier|preceding|all|other|your|existing)\b{_REST}\b{_RULES}\b",
        rf"\b(?:disregard|forget|ignore) {_RULES}",
        r"\bignore the (?:rules|instructions) above\b",
        r"\bfrom now on,? you\b|\byou are now (?:in|a|an|the|dan|free)\b"
        r"|\bobey only\b|\bfree (?:of|from) all restrictions\b",
        r"\b(?:guidelines|restrictions|rules|policies)\b[^.\n]{0,40}\b(?:do not|no longer|don't) "
        r"apply\b",
        r"\brules come before (?:all|any) other",
        r"\bignorier\w* (?:alle |sämtliche )?(?:vorherigen|bisherigen|obigen|früheren)"
        r" (?:anweisungen|regeln|instruktionen)",
        r"\bignor(?:a|e|ez|er|are)\w* (?:todas |toutes |tutte |le |las |les |as )*"
        r"(?:instrucciones|instructions|istruzioni|instruções)"
        r" (?:anteriores|previas|précédentes|precedenti)",
        r"忽略.{0,8}(?:之前|以前|先前|上面|以上).{0,6}(?:指令|指示|说明|规则)",
        r"игнорир\w+ (?:все )?предыдущие (?:инструкции|указания)",
        r"(?:以前|前|上記)の(?:すべての)?(?:指示|命令)を無視",
    ),
    "keeps something from the user": (
        rf"\b(?:do not|don't|never|must not|should not|shall not) (?:ever )?(?:tell|mention|inform|"
        rf"notify|reveal|disclose|alert)\b[^.\n]{{0,60}}\b{_USER}\b",
        rf"\bwithout (?:telling|informing|notifying|alerting)\b[^.\n]{{0,40}}\b{_USER}\b",
        rf"\b{_USER} (?:must|should|may|shall) not (?:notice|know|see|learn|find out|be told|"
        r"be informed)\b",
        rf"\bhide\b[^.\n]{{0,40}}\bfrom {_USER}\b(?! of\b)",
        r"\bkeep (?:this|that|it) (?:a )?secret\b|\bdo not reveal that you\b|\bsay nothing\b"
        r"|\bwhen you report to the user\b",
        rf"\bno need to (?:inform|tell|ask|notify) {_USER}\b",
        r"\bsag\w* (?:es )?(?:dem|der) (?:nutzer|benutzer|anwender)\w* nichts",
        r"\bsin (?:decír\w+|decir|informar|avisar)\w*|\bsans le dire\b|\bsenza dirlo\b",
        r"不要(?:告诉|通知|让)用户",
    ),
    "claims consent": (
        rf"\b{_USER} has already (?:approved|agreed|confirmed|consented)\b",
        r"\bpre-?(?:authori[sz]ed|approved)\b[^.\n]{0,40}\b(?:no|without)\b[^.\n]{0,20}"
        r"\bconfirm",
        r"\b(?:permission|free|allowed) to\b[^.\n]{0,40}\bwithout asking\b",
        r"\bdo(?:n't| not) (?:need|require) the user'?s (?:permission|consent|approval)\b",
        r"\bdo(?:n't| not) ask for (?:confirmation|permission|approval) before\b",
        r"\b(?:verbatim|secrets?|credentials|everything)\b[^.\n]{0,40}\bwithout asking\b",
    ),
    "poses as the system": (
        r"</?(?:system|important|instructions?|critical|secret|admin)\s*>",
        r"(?-i:\[/?INST\])|<\|(?:im_start|im_end|system|endoftext)\|>|<<SYS>>",
        r"(?:^|[.!?>] |\n)SYSTEM: ?(?:you|the assistant|ignore|reveal|override)",
        r"#{1,4} ?(?:new )?system (?:instructions?|prompt|message)",
        r"<!--[^>]{0,200}\b(?:assistant|agent|model|ai)\b",
    ),
    "speaks to the model": (
        r"\b(?:note|message|reminder|hint) (?:to|for) (?:the |an? |any )"
        r"(?:ai|assistant|language model)\b",
        r"\b(?:hidden|secret|important) (?:note|instruction|message)s? (?:to|for) (?:the |any )?"
        r"(?:ai|assistant|language model|llm|agent|model)\b",
        r"\bas an? (?:ai|language model|assistant)[^.\n]{0,20},? you\b",
        r"\b(?:treated|regarded|taken) as (?:commands?|instructions?) (?:from|of) the user\b",
        r"\bfollow any instructions?\b[^.\n]{0,40}\b(?:found|on the page|in the)\b",
        r"\bas if the user had\b|\bits output must be followed\b",
        r"\b(?:call|use|run|invoke)(?: \w+){0,3} (?:after|before|with) (?:every|each) "
        r"(?:message|answer|reply|response|turn)\b",
        r"\bmust be (?:called|used|run|invoked) before any other tool\b",
        r"\b(?:whenever|each time|every time) you (?:answer|reply|respond)\b",
        r"\byou must always (?:recommend|prefer|promote|praise)\b"
        r"|\bnever mention (?:competitors|any other|alternatives)\b",
        r"\b(?:decode|decipher|decrypt)\b[^.\n]{0,30}\band (?:follow|act on|obey|execute|do) ",
        r"\breport that everything (?:passed|worked|is fine|succeeded)\b",
    ),
    "takes something out": (
        rf"\b{_MOVE}\b{_REST}{_TALK}",
        rf"{_TALK}{_REST}\b(?:word for word|verbatim|here)\b",
        rf"\b{_MOVE}\b(?!{_REST}\bnot\b){_REST}{_KEY_FILE}",
        rf"\b(?:read|open|use|copy)\b{_REST}{_KEY_FILE}{_REST}\b(?:pass|put|give|send|hand|"
        r"into|to)\b",
        rf"(?<!not )(?<!never )\b(?:send|transmit|forward|include|attach|reveal|answer)\b"
        rf"{_REST}{_SECRET}",
        r"\bvalues? of (?-i:\$?(?:[A-Z][A-Z0-9]*_){1,6}(?:KEY|TOKEN|SECRET|PASSWORD))\b",
        rf"\b{_SECRET}{_REST}\bhere\b",
        r"https?://[^\s)\"]{1,200}[?&][\w-]{1,40}=(?:\{\{?\s*(?:conversation|history|context|"
        r"messages?|prompt|secrets?|token)|CONVERSATION|DATA|HISTORY|SECRET)",
        r"https?://[^\s)\"]{1,200}= followed by\b",
        r"\b(?:run|execute) `?(?:curl|wget)\b[^\n]{1,120}\| ?(?:ba|z)?sh\b",
        r"\b(?:transfer|send|pay)\b[^.\n]{0,20}(?:\d[\d.,]* ?(?:btc|eth|usdt?|eur)\b|the remainder)"
        r"[^\n]{0,30}\bto\b",
        r"\balways (?:set|add|include|use)\b[^.\n]{0,20}\bbcc\b",
        r"\bchange the (?:recipient|receiver|address|account)\b",
        r"\bsende?\w*\b[^.\n]{0,30}\b(?:gesamten|ganzen|kompletten) (?:verlauf|chat)",
        r"\b(?:env[ií]a|transmet\w*|envoie)\b[^.\n]{0,30}\b(?:claves|contraseñas|conversation|"
        r"conversación|mots de passe)",
        r"把.{0,10}(?:密码|密钥|对话|令牌).{0,6}发送到",
    ),
    "steers other tools": (
        r"\ball other tools\b[^.\n]{0,40}\b(?:must not|should not|never|compromised|unsafe|"
        r"deprecated)\b",
        r"\b(?:never|do not|don't) (?:use|call) (?!it\b|this\b)\S{3,80} (?:again|any ?more)\b",
        r"\b(?:deprecated|unsafe|compromised|insecure)[;,.] use this tool instead\b",
        r"\b(?:whenever|when|if|once)\b[^.\n]{0,60}\b(?:is|are|gets?) (?:used|invoked|called|run)\b"
        r",? (?:change|add|replace|always|also|set)\b",
        r"\bif the \w+ server is (?:connected|available|installed|there)\b",
        r"\b(?:call|run|invoke|use)(?: the tool)? \w+_\w+ with \w+=(?:true|1|yes)\b",
        r"\busing the \w+ server'?s?\b|\broute (?:each|every|all)\b[^.\n]{0,30}\bthrough\b",
        r"\breplaces \w+ of the \w+ server\b",
        r"\bpass (?:the|them|all|every)\b[^.\n]{0,30}\bto the tool \w+",
    ),
}
_TRIGGERS: Mapping[str, tuple[str, ...]] = {
    "sets other instructions aside": (
        *("ignor", "disregard", "forget", "override", "from now on", "you are now", "obey only"),
        *("restrictions", "apply", "come before", "忽略", "игнорир", "無視"),
    ),
    "keeps something from the user": (
        *("tell", "mention", "inform", "notify", "reveal", "disclose", "alert", "not notice"),
        *("not know", "not see", "hide", "secret", "say nothing", "report to the user", "nichts"),
        *("sin decir", "sin decír", "sin avisar", "sans le dire", "senza dirlo", "不要"),
    ),
    "claims consent": ("already", "authori", "approv", "without asking", "permission", "confirm"),
    "poses as the system": (
        *("system", "important>", "instruction", "critical>", "secret>", "admin>", "[inst]"),
        *("[/inst]", "<|", "<<sys>>", "<!--"),
    ),
    "speaks to the model": (
        *("assistant", "language model", "llm", " ai", "instructions", "the user", "its output"),
        *("every", "each", "before any other tool", "you must always", "never mention", "decode"),
        *("decipher", "decrypt", "report that"),
    ),
    "takes something out": (
        *("conversation", "chat", "dialogue", "transcript", "history", "everything the user"),
        *("user's last", "users last", "message", "system prompt", "your full", "your complete"),
        *(".ssh", "id_rsa", "id_ed25519", "id_ecdsa", ".aws/", "/etc/", ".npmrc", ".netrc"),
        *(".pgpass", ".git-cred", ".env", "mcp.json", "wallet.dat", "_key", "_token", "_secret"),
        *("_password", "password", "api key", "tokens", "credential", "cookies", "card number"),
        *("user's", "followed by", "curl", "wget", "transfer", "remainder", "bcc", "change the"),
        *(
            "verlauf",
            "claves",
            "contraseñas",
            "conversación",
            "mots de passe",
            "发送到",
            "={",
            "=data",
        ),
    ),
    "steers other tools": (
        *("other tools", " again", "any more", "anymore", "use this tool instead", " is used"),
        *("invoked", " is called", "is run", "gets called", " server", "=true", "=1", "=yes"),
        *("through", "to the tool"),
    ),
}
"""What a text must contain (in lower case) to be searched at all: this is most of the speed."""
_WINDOW = 220
"""Characters around a trigger that are searched."""
_MAX_WINDOWS = 200
"""Places in one definition that are searched for one meaning."""
_COMPILED: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (meaning, re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE))
    for meaning, patterns in _PHRASES.items()
)
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/]{32,4096}={0,2}(?![\w+/-])")
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2}){5,}[^\s]{0,200}")
_MIN_ENCODED = 20
_SPACE = re.compile(r"\s+")
_LOOKALIKES = str.maketrans(
    "аеорсухіјѕԁһӏԛԝвкмнтɡαοιρνυκ",
    "aeopcyxijsdhlqwbkmhtgaoipvuk",
)
"""Letters of other scripts that look like Latin ones."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A place where a server seems to speak to the model."""

    meaning: str
    """What it seems to do, such as `keeps something from the user`."""
    path: str
    """Where it stands in the definition."""
    excerpt: str


@lru_cache(maxsize=_MAX_REMEMBERED)
def scan_definition(definition: bytes) -> tuple[Finding, ...]:
    """Return what is suspicious in a definition, at most MAX_FINDINGS."""
    try:
        value: Any = json_codec.loads(definition)
    except (ValueError, RecursionError):
        return ()
    found: dict[tuple[str, str], Finding] = {}
    paths: list[str] = []
    lines: list[str] = []
    left = MAX_CHARS
    for path, text in _list_texts(value, "", 0):
        text = text[:left]
        for meaning, match in _find_hidden(text):
            finding = Finding(f"has {meaning}", path, _make_excerpt(text, match))
            found.setdefault((finding.meaning, path), finding)
        read = 0
        for line in (text, *_decode(text)):
            paths.append(path)
            lines.append(_SPACE.sub(" ", normalize_text(line, left)))
            read += len(lines[-1])
        left -= max(len(text), read)
        if left <= 0:
            break
    for finding in _find_phrases(paths, lines):
        found.setdefault((finding.meaning, finding.path), finding)
    return tuple(found.values())[:MAX_FINDINGS]


def _list_texts(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Yield every text with its path: values, and names of parameters."""
    if isinstance(value, str):
        yield path, value
    elif depth > MAX_DEPTH:
        return
    elif isinstance(value, dict):
        for key, member in cast("dict[str, Any]", value).items():
            if depth == 0 and key in ("_meta", "icons"):
                continue
            if not (key.isascii() and len(key) < 32):
                yield path, key
            yield from _list_texts(member, f"{path}.{key}" if path else key, depth + 1)
    elif isinstance(value, list):
        for position, member in enumerate(cast("list[Any]", value)):
            yield from _list_texts(member, f"{path}[{position}]", depth + 1)


def _find_phrases(paths: list[str], lines: list[str]) -> Iterator[Finding]:
    """Search all lines at once: few contain any trigger."""
    text = "\n".join(lines)
    lower = text.lower()
    ends = list(accumulate(len(line) + 1 for line in lines))
    for meaning, pattern in _COMPILED:
        searched = -1
        for start in _find_triggers(lower, _TRIGGERS[meaning]):
            if start < searched:
                continue
            line_start = text.rfind("\n", 0, start) + 1
            line_end = text.find("\n", start)
            searched = min(start + _WINDOW, len(text) if line_end < 0 else line_end)
            match = pattern.search(text, max(line_start, start - _WINDOW), searched)
            if match is not None:
                path = paths[bisect_right(ends, match.start())]
                yield Finding(meaning, path, _make_excerpt(text, match))


def _find_triggers(lower: str, triggers: tuple[str, ...]) -> list[int]:
    """Return where triggers stand, in order, at most _MAX_WINDOWS of them."""
    places: list[int] = []
    for trigger in triggers:
        start = lower.find(trigger)
        while start >= 0 and len(places) < _MAX_WINDOWS:
            places.append(start)
            start = lower.find(trigger, start + len(trigger))
    return sorted(places)


def _find_hidden(text: str) -> Iterator[tuple[str, re.Match[str]]]:
    if text.isprintable():
        return
    shown = text if text.isascii() else _TAG_FLAG.sub("", text)
    for meaning, pattern in _HIDDEN.items():
        match = pattern.search(shown)
        if match is None:
            continue
        # Texts of right-to-left scripts need marks of direction.
        if meaning == _DIRECTION and any(
            unicodedata.bidirectional(letter) in ("R", "AL") for letter in shown[:4_096]
        ):
            continue
        yield meaning, match


def normalize_text(text: str, max_chars: int = MAX_CHARS) -> str:
    """Return a text as a reader sees it: without invisible characters, look-alikes as Latin.

    Some characters become eighteen; what is longer than `max_chars` then is cut.
    """
    if text.isascii():
        return text[:max_chars]
    text = normalize("NFKC", _INVISIBLE.sub("", text), max_chars)
    # A whole word of another script is that script; single letters in a Latin word are not.
    return " ".join(
        word.translate(_LOOKALIKES) if _is_mixed_script(word) else word for word in text.split(" ")
    )


def _is_mixed_script(word: str) -> bool:
    return any("a" <= letter.lower() <= "z" for letter in word) and not word.isascii()


def make_skeleton(name: str) -> str:
    """Return what a name looks like: equal for two that a reader cannot tell apart."""
    text = normalize("NFKC", _INVISIBLE.sub("", name)).casefold()
    return text.translate(_LOOKALIKES).replace("0", "o").replace("1", "l").replace("rn", "m")


def _decode(text: str) -> Iterable[str]:
    """Return texts that are encoded in this one and read like words."""
    if len(text) < _MIN_ENCODED:
        return
    for match in _BASE64.finditer(text):
        try:
            decoded = base64.b64decode(match[0] + "=" * (-len(match[0]) % 4)).decode()
        except (binascii.Error, ValueError):
            continue
        if decoded.isprintable() and decoded.count(" ") >= 3:
            yield decoded
    for match in _PERCENT.finditer(text) if "%" in text else ():
        yield unquote(match[0], errors="replace")


def _make_excerpt(text: str, match: re.Match[str]) -> str:
    start = max(0, match.start() - 20)
    return text[start : max(match.end(), start + 40)][:MAX_EXCERPT].strip()
