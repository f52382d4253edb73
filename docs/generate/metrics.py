"""The page of metrics: kind, labels and meaning, from a scrape of everything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from docs.generate.markdown import code, join_paragraphs
from docs.generate.metric_meanings import MEANINGS
from portico.events import EventBus, ScriptRan, ToolCalled, WorkflowRan
from portico.observability.metrics import (
    CacheStatistics,
    Metrics,
    MetricSources,
    RequestLoad,
    ServerToolCounts,
    StoredItems,
)
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
    """One metric of Portico in a scrape."""

    kind: str
    labels: tuple[str, ...]
    help: str


def scrape_metrics() -> Mapping[str, Shown]:
    """Return every metric of Portico, by the name that queries use."""
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
    """Render a heading for each metric, in groups."""
    found = scrape_metrics()
    described = {name for group in MEANINGS.values() for name in group}
    if differing := found.keys() ^ described:
        raise ValueError(
            f"metric_meanings.py and a scrape differ in {', '.join(sorted(differing))}"
        )
    return join_paragraphs(
        part for group, metrics in MEANINGS.items() for part in _group(group, metrics, found)
    )


def _group(title: str, metrics: Mapping[str, str], found: Mapping[str, Shown]) -> Iterator[str]:
    yield f"## {title}"
    for name, meaning in metrics.items():
        metric = found[name]
        labels = f"labels {', '.join(map(code, metric.labels))}" if metric.labels else "no labels"
        yield f"### `{name}`"
        yield meaning
        yield f"{metric.kind} · {labels} · help: “{metric.help}”"
