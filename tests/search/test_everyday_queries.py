"""Queries with typos, abbreviations and other languages, over twenty tools."""

import pytest

from portico.search import Index, compose_document_text
from portico.search.dense.encoder import get_shipped_encoder
from portico.search.lexical.postings import Postings
from portico.search.lexical.tokens import parse_query
from tests.search.catalog import document

OFFICE = (
    document(
        "kubernetes.list_pods", "List the pods of a namespace with their status, restarts and age."
    ),
    document("kubernetes.scale_deployment", "Change how many replicas a deployment runs."),
    document("kubernetes.apply_manifest", "Create or update resources of a cluster from YAML."),
    document("billing.send_invoice", "Send an invoice to a customer by e-mail."),
    document("billing.refund_payment", "Pay a customer's money back, in full or in part."),
    document(
        "billing.list_subscriptions", "List the subscriptions of a customer and when they renew."
    ),
    document("postgres.run_query", "Run a read-only SQL query against a database."),
    document("postgres.describe_table", "Show the columns, types and indexes of a table."),
    document("calendar.create_event", "Add an appointment to a calendar and invite people."),
    document("calendar.find_free_time", "Find when everybody who is invited has time."),
    document("github.create_pull_request", "Open a pull request from one branch to another."),
    document("github.search_code", "Search the code of all repositories."),
    document("slack.post_message", "Write a message to a channel."),
    document("weather.forecast", "The weather of the coming days at a place."),
    document("translate.translate_text", "Translate a text from one language to another."),
    document("files.resize_image", "Make an image smaller or larger."),
    document("files.convert_to_pdf", "Turn a document into a PDF file."),
    document("maps.directions", "The way from one place to another, by car, by train or on foot."),
    document("hr.request_vacation", "Ask for days off."),
    document("crm.find_contact", "Look up a customer's address and telephone number."),
)
INDEX = Index.build(OFFICE, encoder=get_shipped_encoder()).with_vectors(
    {it.id: get_shipped_encoder().encode_document(compose_document_text(it)) for it in OFFICE}
)


def first(query: str, places: int) -> list[str]:
    return [hit.id for hit in INDEX.search(query, places).hits]


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("k8s pods crashign", "kubernetes.list_pods"),
        ("kuberntes deploymnet replcias", "kubernetes.scale_deployment"),
        ("snd invoce to custmer", "billing.send_invoice"),
        ("tranlsate a sentense", "translate.translate_text"),
        ("wether tomorow", "weather.forecast"),
    ],
)
def test_a_slip_of_the_finger_finds_the_tool(query: str, tool: str):
    assert first(query, 1) == [tool]


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("scale k8s deploy", "kubernetes.scale_deployment"),
        ("open a PR", "github.create_pull_request"),
        ("pg cols of tbl", "postgres.describe_table"),
        ("msg the team", "slack.post_message"),
    ],
)
def test_an_abbreviation_finds_the_tool(query: str, tool: str):
    assert tool in first(query, 3)


@pytest.mark.parametrize(
    ("query", "tool"),
    [
        ("Rechnung an einen Kunden senden", "billing.send_invoice"),
        ("traduire un texte", "translate.translate_text"),
        ("¿qué tiempo hará mañana en Madrid?", "weather.forecast"),
        ("redimensionar uma imagem", "files.resize_image"),
        ("给客户发送发票", "billing.send_invoice"),
        ("明日の天気", "weather.forecast"),
        ("перевести текст на английский", "translate.translate_text"),
    ],
)
def test_another_language_finds_the_tool(query: str, tool: str):
    assert tool in first(query, 3)


def test_what_no_tool_does_is_called_so_and_what_one_does_is_not():
    for query in (
        "compose a symphony for orchestra",
        "sequence the genome of a mouse",
        "feed the aquarium fish",
    ):
        assert INDEX.search(query).is_weak, query
    for query in (
        "give the client his money back",
        "when are all of us free?",
        "picture is too big",
    ):
        assert not INDEX.search(query).is_weak, query


def test_what_is_not_encoded_yet_is_not_denied_while_others_are():
    few = Index.build(OFFICE, encoder=get_shipped_encoder()).with_vectors(
        {OFFICE[-1].id: get_shipped_encoder().encode_document(compose_document_text(OFFICE[-1]))}
    )
    for query in ("send an invoice to a customer", "list pods of a namespace", "translate a text"):
        assert not few.search(query).is_weak, query


@pytest.mark.parametrize(
    "text",
    [
        "{} word{} " * 10_000,
        "find a tool{}, then send it{}. " * 4_000,
        "天{}地{}，" * 5_000,
        "a{}_b{}." * 5_000,
    ],
)
def test_however_long_a_query_is_it_asks_for_no_more_than_a_long_one(text: str):
    endless = text.format(*range(text.count("{}")))
    query = parse_query(endless, Postings.empty())
    assert query == parse_query(endless[:4_000], Postings.empty())
    assert len(query.terms) <= 2_000
    assert len(query.clauses) <= 8
    assert len(INDEX.search(endless).hits) <= 8
