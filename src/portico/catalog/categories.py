"""The built-in categories, their synonyms, and the category that a name means. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from portico.catalog.address import find_nearest_names, fold
from portico.catalog.tool import quote_text, sanitize_text
from portico.errors import UnknownName

VERSION = "1-dd38c7f9"
"""Changes whenever the same text may get another category; the second part is the digest of the
word weights."""


@dataclass(frozen=True, slots=True)
class Category:
    key: str
    title: str
    description: str


OTHER = "other"
_CATEGORIES = """
ai-models|AI models and agents|Asks other models, trains, evaluates and tracks them.
browser-automation|Browser and app automation|Drives a browser or an app: opens, clicks, fills in.
business|Business, sales and marketing|Customers, shops, advertising, web content, ERP.
cloud|Cloud and infrastructure|Accounts, containers, clusters, queues, deployments and their cost.
communication|Mail, chat and social media|Sends and reads mail, messages, calls and posts.
data-analysis|Data analysis and charts|Charts, diagrams, statistics, data sets.
databases|Databases and search engines|Stores and queries tables, documents, keys, graphs, vectors.
developer-docs|Developer documentation|What libraries, frameworks and components say of themselves.
developer-tools|Developer tools|Runs, builds, tests, checks and releases code; packages, shells.
devices|Home and devices|Smart homes, sensors, machines.
documents|Files and documents|Folders, text files, PDF, word processing, spreadsheets, slides.
finance|Finance and payments|Markets, currencies, payments, accounting.
maps-and-travel|Maps, travel and weather|Places, routes, trips, stays, weather.
media|Images, video, audio and design|Makes, edits, plays and finds media; 3D and design.
monitoring|Monitoring|Logs, metrics, traces, alerts, incidents, errors in production.
notes-and-memory|Notes and memory|Notes, wikis, what an agent remembers.
project-management|Projects, tasks and calendars|Issues, boards, to-do lists, appointments.
research|Research, science and health|Papers, encyclopedias, biology, medicine.
security|Security and identity|Permissions, secrets, vulnerabilities, taking binaries apart.
utilities|Small utilities|Time, arithmetic, units, chance.
version-control|Version control|Repositories, commits, branches, reviews.
web-search|Web search and pages|Searches the web, reads and crawls pages, news.
workflows|Workflow automation|Scheduled and chained jobs, across apps or over data.
other|Other|What fits nowhere else: games, sports, food and the rest.
"""
TAXONOMY = tuple(Category(*line.split("|")) for line in _CATEGORIES.strip().splitlines())
_SYNONYMS_BY_KEY = {
    "ai-models": "agents ai artificial-intelligence llm llms machine-learning ml mlops models",
    "browser-automation": "browser browsers mobile-automation ui-automation web-automation",
    "business": (
        "ads advertising cms commerce crm e-commerce ecommerce erp hr marketing sales seo shopping"
    ),
    "cloud": (
        "aws azure cloud-computing cloud-infrastructure cloud-platforms containers deployment"
        " docker gcp hosting infrastructure k8s kubernetes messaging-queues"
    ),
    "communication": "chat email mail messages messaging sms social social-media",
    "data-analysis": (
        "analytics bi business-intelligence charts data data-science data-visualization statistics"
        " visualization"
    ),
    "databases": "caches data-storage database db nosql sql storage vector-databases",
    "developer-docs": "api-docs docs documentation reference",
    "developer-tools": (
        "ci ci-cd code code-execution coding dev development devops devtools ide packages"
        " programming shell software-development terminal testing"
    ),
    "devices": "hardware home home-and-devices home-automation iot robotics smart-home",
    "documents": (
        "document-processing excel file file-storage file-system file-systems files filesystem"
        " office pdf spreadsheets"
    ),
    "finance": "accounting banking billing blockchain crypto fintech money payments stocks trading",
    "maps-and-travel": (
        "geo geography gis location location-services maps maps-and-weather navigation travel"
        " weather"
    ),
    "media": (
        "3d art audio design image image-generation images media-generation multimedia music video"
    ),
    "monitoring": "alerting incidents logging logs metrics observability sre",
    "notes-and-memory": (
        "knowledge knowledge-base knowledge-management memory memory-and-knowledge note-taking"
        " notes wiki"
    ),
    "project-management": (
        "calendar calendar-and-tasks calendars issue-tracking issues productivity project-tracking"
        " projects task-management tasks todo"
    ),
    "research": (
        "academic biology biomedical health health-and-science healthcare medicine papers science"
    ),
    "security": "auth iam identity reverse-engineering",
    "utilities": "calculator math time tools utility",
    "version-control": "code-hosting git github gitlab repositories source-control vcs",
    "web-search": "crawling news scraping search web web-scraping",
    "workflows": "automation data-pipelines orchestration pipelines workflow workflow-automation",
    "other": "food games gaming misc miscellaneous sports",
}
SYNONYMS = {name: key for key, names in _SYNONYMS_BY_KEY.items() for name in names.split()}
"""Categories by synonym slug."""
MAX_KEY = 40
_MAX_SUGGESTED = 40
"""Maximum number of categories named in an error without a near match."""
_BY_KEY = {category.key: category for category in TAXONOMY}
_BY_NAME = {
    fold(name): category.key for category in TAXONOMY for name in (category.key, category.title)
}
BY_SYNONYM = {**{fold(name): key for name, key in SYNONYMS.items()}, **_BY_NAME}
_NOT_SLUG = re.compile(r"[^\w]+|_+")


def to_category(key: str) -> Category:
    """Return a built-in category, or a custom one with a title derived from its key."""
    return _BY_KEY.get(key) or Category(key, key.replace("-", " ").capitalize(), "")


def resolve_category(name: str, known_keys: Iterable[str]) -> str:
    """Return the known category that a name means, by key, title or synonym.

    Raises UnknownName with the nearest.
    """
    keys = list(known_keys)
    if name in keys:
        return name
    folded = fold(name)
    by_name = {
        **{fold(to_category(key).title): key for key in keys},
        **{fold(key): key for key in keys},
    }
    if folded and (found := by_name.get(folded)):
        return found
    if (synonym := BY_SYNONYM.get(folded)) and synonym in keys:
        return synonym
    near = find_nearest_names(name.strip(), keys)
    advice = f"Categories here: {', '.join(sorted(keys)[:_MAX_SUGGESTED])}."
    if near:
        advice = f"Did you mean {', '.join(near)}?"
    raise UnknownName(f"there is no category {quote_text(name)} here", nearest=near, advice=advice)


def normalize_category(name: str) -> str:
    """Normalize a configured category: a built-in one by key or title, else a slug."""
    return _BY_NAME.get(fold(name)) or to_slug(name)


def to_slug(name: str) -> str:
    return (
        _NOT_SLUG.sub("-", sanitize_text(name).strip().casefold()).strip("-")[:MAX_KEY].rstrip("-")
    )
