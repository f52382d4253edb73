"""Pages that the authorization server shows people. Pure.

The form of the consent page carries a token made from the secret in the browser's cookie and all
that the client asked for: another page can neither make it nor change what is agreed to. No script
runs, nothing is loaded, and nothing can frame the pages.

The page that leads to the identity provider is a page and no redirect: browsers apply `form-action`
also to the redirects after a form, and where those end is not known.
"""

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from html import escape
from urllib.parse import urlsplit

from portico.auth.proxy.authorization_request import AuthorizationRequest
from portico.auth.proxy.redirect_uris import describe_target, is_web_redirect

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1rem;"
    "color:#1b1b1b;background:#fff}h1{font-size:1.3rem}dt{color:#555;font-size:.85rem;"
    "margin-top:.8rem}dd{margin:0;overflow-wrap:anywhere}button{font:inherit;padding:.5rem 1.2rem;"
    "margin:1.5rem .6rem 0 0}"
)
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
PAGE_HEADERS = {
    "Content-Security-Policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; "
        "frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers say `Origin: null` of the form.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def compute_form_token(browser_secret: str, params: Mapping[str, str]) -> str:
    """Return what shows that a form was made for this browser and these parameters."""
    message = json.dumps(sorted(params.items()))
    return hmac.new(browser_secret.encode(), message.encode(), hashlib.sha256).hexdigest()


def render_consent_page(
    request: AuthorizationRequest, form_action: str, form_token: str, provider: str
) -> str:
    """Ask whether a client may act for the person; `provider` is who will say who that is."""
    client = request.client
    name = client.name or "A program without a name"
    claim = "This is the name it gives itself. Anybody can register under any name."
    if client.is_document:
        claim = f"{urlsplit(client.id).netloc} vouches for this name."
    rows = [
        ("Program", f"{name} ({claim})"),
        ("Answers go to", f"{describe_target(request.redirect_uri)}: {request.redirect_uri}"),
        ("May use, as you", f"every tool that is open to you at {request.resource}"),
        ("Client id", client.id),
    ]
    listed = "".join(
        f"<dt>{escape(label)}</dt><dd>{escape(text)}</dd>" for label, text in rows if text
    )
    hidden = "".join(
        f'<input type="hidden" name="{escape(key)}" value="{escape(value)}">'
        for key, value in {**request.to_params(), "form_token": form_token}.items()
    )
    warning = "If you did not just start this in a program of yours, deny it."
    if not is_web_redirect(request.redirect_uri):
        warning += " Any program on this computer can claim to be this one."
    return _render(
        f"Let {name} use your tools?",
        f"<dl>{listed}</dl><p>{escape(warning)}</p>"
        f'<form method="post" action="{escape(form_action)}">{hidden}'
        '<button name="decision" value="deny">Deny</button>'
        f'<button name="decision" value="allow">Allow, and sign in at {escape(provider)}</button>'
        "</form>",
    )


def render_continue_page(url: str, provider: str) -> str:
    """Lead to the identity provider."""
    return _render(
        f"Sign in at {provider}",
        f'<p><a href="{escape(url)}">Continue to {escape(provider)}</a></p>',
        f'<meta http-equiv="refresh" content="0;url={escape(url)}">',
    )


def render_server_page(
    server: str, form_action: str, form_token: str, *, provider: str, asks_key: bool
) -> str:
    """Ask whether to sign in to a server, and who asks: by the identity provider, or by a key."""
    key = ""
    if asks_key:
        key = (
            '<p><label>The key or token that your client uses here<br><input type="password" '
            'name="credential" autocomplete="off" size="40"></label></p>'
        )
        if provider:
            key = f"<details><summary>I have a key</summary>{key}</details>"
    where = f"{provider}, and then at {server}" if provider else server
    return _render(
        f"Sign in to {server}?",
        f"<p>Your account there will be used for what you ask {escape(server)} for here.</p>"
        "<p>If you did not ask for this, close the page.</p>"
        f'<form method="post" action="{escape(form_action)}">'
        f'<input type="hidden" name="form_token" value="{escape(form_token)}">{key}'
        f"<button>Sign in at {escape(where)}</button></form>",
    )


def render_done_page(server: str) -> str:
    return _render(
        f"{server} is signed in to",
        "<p>Close this page, and go on in the program that you came from.</p>",
    )


def render_error_page(problem: str, advice: str) -> str:
    return _render("This sign-in ends here", f"<p>{escape(problem)}</p><p>{escape(advice)}</p>")


def _render(title: str, body: str, head: str = "") -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"{head}<title>{escape(title)}</title><style>{_STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>{body}</body></html>"
    )
