"""A product that is here and an action that none of its tools offers: said, and only then."""

import pytest

from portico.search import Encoder, Index, Ranking, SearchDocument, compose_document_text
from portico.search.dense.encoder import get_shipped_encoder

TOOLS = {
    "slack": {
        "post_message": "Post a message to a channel.",
        "get_channel_history": "Get the recent messages of a channel.",
        "add_reaction": "Add an emoji reaction to a message.",
        "list_channels": "List the channels of the workspace.",
    },
    "mail": {
        "delete_message": "Delete a message for ever.",
        "send_message": "Send a message to somebody.",
        "edit_draft": "Edit the text of a draft message before it is sent.",
    },
    "jobs": {
        "start": "Start a job.",
        "change_job": "Pause, delete or restart a job.",
    },
    "calendar-events": {"cancel_event": "Cancel an event.", "create_event": "Create an event."},
}


def documents() -> list[SearchDocument]:
    return [
        SearchDocument(
            f"{server}.{name}", f"{server}.{name}", server, name, "", server, description=text
        )
        for server, tools in TOOLS.items()
        for name, text in tools.items()
    ]


def build(encoder: Encoder | None) -> Index:
    index = Index.build(documents(), encoder=encoder)
    if encoder is None:
        return index
    return index.with_vectors(
        {one.id: encoder.encode_document(compose_document_text(one)) for one in documents()}
    )


INDEX = build(get_shipped_encoder())


def search(query: str, index: Index = INDEX) -> Ranking:
    return index.search(query, 3)


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("delete a Slack message", "delete"),
        ("please remove a message from Slack", "remove"),
        ("Slack: delete what I posted in the channel", "delete"),
        ("edit the draft of a message in Slack", "edit"),
    ],
)
def test_an_action_that_a_product_lacks_is_named(query: str, word: str):
    ranking = search(query)
    assert ranking.missing_action is not None
    assert ranking.missing_action.word == word
    assert ranking.missing_action.groups == ("slack",)
    assert ranking.is_weak
    assert ranking.hits


def test_by_words_alone_only_what_is_certain_is_said():
    words = build(None)
    assert search("delete a Slack message", words).missing_action
    assert not search("edit the draft of a message in Slack", words).missing_action


@pytest.mark.parametrize(
    "query",
    [
        "post a Slack message",
        "add a thumbs-up to a message in Slack",
        "create a reaction to a Slack message",
        "who deleted the Slack message?",
        "answer somebody on Slack",
        "delete a message",
        "delete a mail message",
        "erase a job",
        "slack.post_message",
        "delete",
        "Slack",
        "cancel the event in my calendar events",
    ],
)
def test_what_a_product_offers_or_nobody_asked_of_it_is_not_denied(query: str):
    assert search(query).missing_action is None


def test_what_the_first_hit_mentions_is_not_denied():
    # "Pause, delete or restart a job." is no name, but says that it deletes.
    assert search("delete a job in jobs").missing_action is None


def test_a_product_that_may_not_be_seen_is_not_spoken_of():
    hidden = INDEX.search("delete a Slack message", 3, allow=lambda id_: "slack" not in id_)
    assert hidden.missing_action is None


def test_a_long_text_is_not_judged_by_its_first_word():
    assert search(
        "delete a Slack message " + "that nobody needs any more " * 10
    ).missing_action is (None)


def test_only_servers_that_may_be_seen_are_named():
    more = [
        SearchDocument(
            f"slack-two.{name}", name, "slack-two", name, "", "slack-two", description=it
        )
        for name, it in TOOLS["slack"].items()
    ]
    index = Index.build([*documents(), *more])
    both = index.search("delete a Slack message", 3).missing_action
    assert both is not None
    assert both.groups == ("slack", "slack-two")
    seen = index.search("delete a Slack message", 3, allow=lambda id_: "two" not in id_)
    assert seen.missing_action is not None
    assert seen.missing_action.groups == ("slack",)
