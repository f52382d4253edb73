"""Recognizers of presidio-analyzer as further kinds of what is masked: `presidio:US_SSN` and so on.

Only recognizers that go by patterns and check digits: no language model is loaded, and nothing is
fetched. Presidio is an optional extra, takes seconds to import, and is loaded once.
"""

import importlib
import logging
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from portico.errors import ConfigError

PREFIX = "presidio:"
MIN_SCORE = 0.4
"""Certainty from which a finding is masked; below it are bare runs of digits."""
_LANGUAGE = "en"


def is_presidio_kind(kind: str) -> bool:
    return kind.startswith(PREFIX)


def check_kinds(kinds: Iterable[str]) -> None:
    """Load what finds these kinds; raises ConfigError where that is impossible."""
    for kind in kinds:
        if is_presidio_kind(kind):
            _find_recognizers(kind.removeprefix(PREFIX))


def find_spans(kind: str, text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Find what a kind names in a part of a text, in order, without overlaps."""
    entity = kind.removeprefix(PREFIX)
    part = text[start:end]
    found = sorted(
        (start + result.start, start + result.end)
        for recognizer in _find_recognizers(entity)
        for result in recognizer.analyze(part, [entity], None)
        if result.score >= MIN_SCORE
    )
    reached = start
    for begin, stop in found:
        if stop > reached:
            yield max(begin, reached), stop
            reached = stop


@cache
def _find_recognizers(entity: str) -> tuple[Any, ...]:
    known = _load_recognizers()
    found = tuple(one for one in known if entity in one.supported_entities)
    if not found:
        entities = sorted({entity for one in known for entity in one.supported_entities})
        raise ConfigError(
            f"presidio finds no {entity} without a language model",
            advice=f"It finds {', '.join(entities)}.",
            key="rules",
        )
    return found


@cache
def _load_recognizers() -> tuple[Any, ...]:
    try:
        presidio: Any = importlib.import_module("presidio_analyzer")
        predefined: Any = importlib.import_module("presidio_analyzer.predefined_recognizers")
        tldextract: Any = importlib.import_module("tldextract")
    except ImportError as error:
        raise ConfigError(
            f"presidio cannot be loaded ({error})",
            advice="pip install 'portico-mcp[presidio]'",
            key="rules",
        ) from error
    # By itself it fetches a list of domains at the first address that it checks.
    tldextract.tldextract.TLD_EXTRACTOR = tldextract.TLDExtract(suffix_list_urls=())
    # It warns of each recognizer of another language.
    logging.getLogger("presidio-analyzer").setLevel(logging.ERROR)
    registry = presidio.RecognizerRegistry()
    registry.load_predefined_recognizers(languages=[_LANGUAGE])
    return tuple(
        one for one in registry.recognizers if not isinstance(one, predefined.SpacyRecognizer)
    )
