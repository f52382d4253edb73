"""Language codes: the many names a locale goes by, made one, and the script each language is
written in."""

import re

LANGUAGES = (
    "de", "es", "fr", "pt", "it", "nl", "pl", "ru", "uk", "ja", "zh", "zh-tw", "ko", "tr", "ar",
        "hi", "sv", "cs", "vi",
    "id", "el", "da", "fi", "hu", "ro", "he", "fa", "th", "nb",
)  # fmt: skip
"""The ones trained for, besides English; zh is simplified, zh-tw traditional Chinese."""

_ALIASES = {
    "cn": "zh", "tw": "zh-tw", "chs": "zh", "cht": "zh-tw", "kr": "ko", "jp": "ja", "ua": "uk",
        "gr": "el",
    "cz": "cs", "iw": "he", "in": "id", "no": "nb", "deu": "de", "esn": "es", "fra": "fr",
        "ita": "it",
    "jpn": "ja", "kor": "ko", "plk": "pl", "ptb": "pt", "rus": "ru", "trk": "tr", "csy": "cs",
        "fil": "tl",
}  # fmt: skip
_NOT_LANGUAGES = frozenset({
    "en", "enu", "qps", "index", "languages", "template", "default", "defaultmessages", "metadata",
    "ach", "pr", "bar", "vls",
})  # fmt: skip
"""English, files that are no translation, and jokes."""


def language(code: str) -> str | None:
    """Two-letter code of a locale name (zh simplified, zh-tw traditional); None for English and
    others."""
    code = re.sub(r"(?<=[a-z])(?=[A-Z]{2}$)", "-", code).replace("_", "-").replace("@", "-").lower()
    if re.match(r"zh-(.*-)?(hant|tw|hk|mo)\b", code):
        return "zh-tw"
    base = code.split("-")[0]
    if base in _NOT_LANGUAGES or not 2 <= len(base) <= 3:
        return None
    return _ALIASES.get(base, base)


_SCRIPTS = {
    "ru": "Ѐ-ӿ", "uk": "Ѐ-ӿ", "bg": "Ѐ-ӿ", "be": "Ѐ-ӿ", "mk": "Ѐ-ӿ", "kk": "Ѐ-ӿ", "mn": "Ѐ-ӿ",
    "el": "Ͱ-Ͽ", "he": "֐-׿", "ar": "؀-ۿ", "fa": "؀-ۿ", "ur": "؀-ۿ", "hi": "ऀ-ॿ", "mr": "ऀ-ॿ",
        "ne": "ऀ-ॿ",
    "bn": "ঀ-৿", "ta": "஀-௿", "te": "ఀ-౿", "ml": "ഀ-ൿ", "th": "฀-๿", "ko": "가-힯", "ja": "぀-ヿ一-鿿",
    "zh": "一-鿿", "zh-tw": "一-鿿", "ka": "Ⴀ-ჿ", "hy": "԰-֏", "km": "ក-៿", "lo": "຀-໿", "si": "඀-෿",  # noqa: E501
    "kn": "ಀ-೿", "gu": "઀-૿", "pa": "਀-੿", "my": "က-႟", "am": "ሀ-፿",
}  # fmt: skip
_NATIVE = {code: re.compile(f"[{letters}]") for code, letters in _SCRIPTS.items()}


def in_its_script(code: str, text: str) -> bool:
    """Whether a text has letters of its language's script; of the languages in Latin letters, any
    text has."""
    native = _NATIVE.get(code)
    return native is None or native.search(text) is not None
