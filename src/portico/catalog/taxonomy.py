"""The built-in categories and their synonyms. Data only."""

from dataclasses import dataclass

VERSION = "1-dd38c7f9"
"""Changes whenever the same text may get another category; the second part is the digest of the
word weights."""


@dataclass(frozen=True, slots=True)
class Category:
    """A subject that tools are browsed by."""

    key: str
    title: str
    description: str


OTHER = "other"

TAXONOMY = (
    Category(
        "ai-models", "AI models and agents", "Asks other models, trains, evaluates and tracks them."
    ),
    Category(
        "browser-automation",
        "Browser and app automation",
        "Drives a browser or an app: opens, clicks, fills in.",
    ),
    Category(
        "business",
        "Business, sales and marketing",
        "Customers, shops, advertising, web content, ERP.",
    ),
    Category(
        "cloud",
        "Cloud and infrastructure",
        "Accounts, containers, clusters, queues, deployments and their cost.",
    ),
    Category(
        "communication",
        "Mail, chat and social media",
        "Sends and reads mail, messages, calls and posts.",
    ),
    Category(
        "data-analysis", "Data analysis and charts", "Charts, diagrams, statistics, data sets."
    ),
    Category(
        "databases",
        "Databases and search engines",
        "Stores and queries tables, documents, keys, graphs, vectors.",
    ),
    Category(
        "developer-docs",
        "Developer documentation",
        "What libraries, frameworks and components say of themselves.",
    ),
    Category(
        "developer-tools",
        "Developer tools",
        "Runs, builds, tests, checks and releases code; packages, shells.",
    ),
    Category("devices", "Home and devices", "Smart homes, sensors, machines."),
    Category(
        "documents",
        "Files and documents",
        "Folders, text files, PDF, word processing, spreadsheets, slides.",
    ),
    Category("finance", "Finance and payments", "Markets, currencies, payments, accounting."),
    Category(
        "maps-and-travel", "Maps, travel and weather", "Places, routes, trips, stays, weather."
    ),
    Category(
        "media",
        "Images, video, audio and design",
        "Makes, edits, plays and finds media; 3D and design.",
    ),
    Category(
        "monitoring",
        "Monitoring",
        "Logs, metrics, traces, alerts, incidents, errors in production.",
    ),
    Category("notes-and-memory", "Notes and memory", "Notes, wikis, what an agent remembers."),
    Category(
        "project-management",
        "Projects, tasks and calendars",
        "Issues, boards, to-do lists, appointments.",
    ),
    Category(
        "research", "Research, science and health", "Papers, encyclopedias, biology, medicine."
    ),
    Category(
        "security",
        "Security and identity",
        "Permissions, secrets, vulnerabilities, taking binaries apart.",
    ),
    Category("utilities", "Small utilities", "Time, arithmetic, units, chance."),
    Category("version-control", "Version control", "Repositories, commits, branches, reviews."),
    Category(
        "web-search", "Web search and pages", "Searches the web, reads and crawls pages, news."
    ),
    Category(
        "workflows", "Workflow automation", "Scheduled and chained jobs, across apps or over data."
    ),
    Category("other", "Other", "What fits nowhere else: games, sports, food and the rest."),
)

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
        " projects task- management tasks todo"
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
