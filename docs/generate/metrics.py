"""Every metric that a scrape may show: its kind, its labels and what it means, read off a scrape of
everything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from docs.generate.markdown import code, joined
from docs.generate.metric_meanings import MEANINGS
from portico.events import EventBus, ScriptRan, ToolCalled, WorkflowRan
from portico.observability.metric_sources import (
    CacheStatistics,
    MetricSources,
    RequestLoad,
    ServerToolCounts,
    StoredItems,
)
from portico.observability.metrics import Metrics
from portico.storage.rows import LedgerTotal
from portico.upstream.lifecycle.supervisor import UpstreamStatus

_OURS = "portico_"
_EVERYTHING = MetricSources(
    statuses=lambda: [
        UpstreamStatus("a", "stdio", "ready", 0.0, memory_bytes=1, diagnostics={"instances": 1})
    ],
    tokens=LedgerTotal,
    catalog=lambda: lambda: {"a": ServerToolCounts(1, 0)},
    cache=lambda: CacheStatistics(0, 0, StoredItems(0, 0)),
    results=lambda: StoredItems(0, 0),
    workers=lambda: {"lua": (0, 1)},
    clients=lambda: {"modern": 0},
    request_load=lambda: RequestLoad(0, 0, 0),
    is_record_usable=lambda: True,
    is_audit_usable=lambda: True,
    is_config_usable=lambda: True,
)


@dataclass(frozen=True)
class Shown:
    """One metric of ours, as a scraper finds it."""

    kind: str
    labels: tuple[str, ...]
    help: str


def scraped() -> Mapping[str, Shown]:
    """Every metric of ours, by the name that queries use."""
    bus = EventBus()
    metrics = Metrics(bus, _EVERYTHING)
    bus.publish(ToolCalled("a.b", "hash", 0.1, ok=False, error="timeout"))
    bus.publish(ScriptRan("lua", 0.1, "ok"))
    bus.publish(WorkflowRan(0.1, "finished"))
    body, _ = metrics.render()
    metrics.unsubscribe()
    found: dict[str, Shown] = {}
    for family in text_string_to_metric_families(body.decode()):
        if family.name.startswith(_OURS):
            labels = dict.fromkeys(
                label for sample in family.samples for label in sample.labels if label != "le"
            )
            name = f"{family.name}_total" if family.type == "counter" else family.name
            found[name] = Shown(family.type, tuple(labels), family.documentation)
    return found


def page() -> str:
    """A heading for each metric, in groups."""
    found = scraped()
    told = {name for group in MEANINGS.values() for name in group}
    if untold := found.keys() ^ told:
        raise ValueError(f"metric_meanings.py and a scrape differ in {', '.join(sorted(untold))}")
    return joined(
        part for group, metrics in MEANINGS.items() for part in _group(group, metrics, found)
    )


def _group(title: str, metrics: Mapping[str, str], found: Mapping[str, Shown]) -> Iterator[str]:
    yield f"## {title}"
    for name, meaning in metrics.items():
        one = found[name]
        labels = f"labels {', '.join(map(code, one.labels))}" if one.labels else "no labels"
        yield f"### `{name}`"
        yield meaning
        yield f"{one.kind} · {labels} · help: “{one.help}”"
