"""What other pages, other hosts and lesser keys try on the console; none of it works.

Attacks by cookies, proofs and links alone are in `test_sign_in.py`, hostile texts in
`test_hostile_texts.py`.
"""

import asyncio
import json
import re
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import AsyncExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx2
import pytest

from portico.config import Config
from portico.testing import FakeBackend
from tests.console.browser import TIMEOUT_S, Browser, wait_until
from tests.console.pages import open_page
from tests.console.served import GatewayThread, ServedConsole, TestKeys, serve_console
from tests.interaction.fake_servers import fake

JSON = {"content-type": "application/json"}
TOKEN = "the token of the configuration"


class _AttackerPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = b"<!doctype html><title>evil</title><body>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


@contextmanager
def serve_attacker() -> Generator[int]:
    """Serve an empty page on a port of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _AttackerPage) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        serving.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            serving.join(TIMEOUT_S)


CALL = "JSON.stringify({tool: 'mail.write', arguments: {}})"
ATTACKS = {
    # name: function body of a page elsewhere; `root` is the console's address; answers what it got
    "a form that calls a tool": """
        const frame = document.createElement('iframe'); frame.name = 'out';
        const form = document.createElement('form');
        form.method = 'POST'; form.enctype = 'text/plain'; form.target = 'out';
        form.action = root + '/api/v1/calls';
        const field = document.createElement('input');
        field.name = '{"tool": "mail.write", "arguments": {}, "x": "'; field.value = '"}';
        form.append(field); document.body.append(frame, form);
        frame.onload = () => done(frame.contentDocument?.body?.innerText || 'nothing');
        form.submit();""",
    "a form that restarts a server": """
        const frame = document.createElement('iframe'); frame.name = 'out';
        const form = document.createElement('form');
        form.method = 'POST'; form.target = 'out';
        form.action = root + '/api/v1/servers/mail/restart';
        document.body.append(frame, form);
        frame.onload = () => done(frame.contentDocument?.body?.innerText || 'nothing');
        form.submit();""",
    "a call without a preflight": f"""
        fetch(root + '/api/v1/calls', {{method: 'POST', mode: 'no-cors', credentials: 'include',
            headers: {{'Content-Type': 'text/plain'}}, body: {CALL}}})
            .then(r => r.text()).then(t => done(t || 'nothing'), () => done('nothing'));""",
    "a call with a preflight": f"""
        fetch(root + '/api/v1/calls', {{method: 'POST', credentials: 'include', body: {CALL},
            headers: {{'Content-Type': 'application/json', 'X-Portico-Proof': 'none'}}}})
            .then(r => r.text()).then(done, () => done('nothing'));""",
    "a beacon": f"""
        navigator.sendBeacon(root + '/api/v1/calls', new Blob([{CALL}], {{type: 'text/plain'}}));
        fetch(root + '/api/v1/stats', {{mode: 'no-cors', credentials: 'include'}})
            .then(() => done('nothing'), () => done('nothing'));""",
    "reading what the API answers": """
        fetch(root + '/api/v1/stats', {credentials: 'include'})
            .then(r => r.text()).then(done, () => done('nothing'));""",
    "reading who is signed in": """
        fetch(root + '/console/session', {credentials: 'include'})
            .then(r => r.text()).then(done, () => done('nothing'));""",
    "reading the page": """
        fetch(root + '/console', {credentials: 'include'})
            .then(r => r.text()).then(done, () => done('nothing'));""",
    "listening to the event stream by fetch": """
        fetch(root + '/api/v1/events', {credentials: 'include'})
            .then(r => r.body.getReader().read())
            .then(() => done('read'), () => done('nothing'));""",
    "listening to the event stream as EventSource": """
        const source = new EventSource(root + '/api/v1/events', {withCredentials: true});
        source.onopen = () => { source.close(); done('open'); };
        source.onerror = () => { source.close(); done('nothing'); };""",
    "an answer of the API as a script": """
        const script = document.createElement('script'); script.src = root + '/api/v1/tools';
        script.onload = () => done('loaded'); script.onerror = () => done('nothing');
        document.body.append(script);""",
    "a module of the console as a script": """
        const script = document.createElement('script'); script.type = 'module';
        script.src = root + module;
        script.onload = () => done('loaded'); script.onerror = () => done('nothing');
        document.body.append(script);""",
    "an image of the console, which says that it is there": """
        const image = new Image(); image.src = root + module.replace('main.js', 'icon.svg');
        image.onload = () => done('loaded'); image.onerror = () => done('nothing');""",
    "a window of the console": """
        const other = window.open(root + '/console');
        setTimeout(() => { let text = 'nothing';
            try { text = other.document.body.innerText || 'nothing'; } catch {}
            other?.close(); done(text); }, 300);""",
    "the proof in the storage": "done(localStorage.getItem('portico.proof') || 'nothing');",
    "a socket": """
        const socket = new WebSocket(root.replace('http', 'ws') + '/api/v1/events');
        socket.onopen = () => done('open'); socket.onerror = () => done('nothing');""",
}


@pytest.fixture(scope="module")
def attacker_port() -> Generator[int]:
    with serve_attacker() as port:
        yield port


@pytest.fixture(scope="module", params=["signed in", "no sign-in needed"])
def victim(
    thread: GatewayThread, shared_window: Browser, request: pytest.FixtureRequest
) -> Generator[tuple[ServedConsole, FakeBackend]]:
    """A gateway whose user has the console open in the attacked browser."""
    mail = fake("read", "write")
    token = TOKEN if request.param == "signed in" else None
    with thread.serve({"mail": mail}, token=token) as served:
        if token:
            shared_window.open(f"{served.root}/console")
            shared_window.fill("#credential", token)
            shared_window.click("button", "Sign in")
        open_page(shared_window, served, "overview")
        yield served, mail
        open_page(shared_window, served, "servers/mail")
        shared_window.wait_for("h1", "mail")  # the user is signed in still
        assert_untouched(mail)


def assert_untouched(mail: FakeBackend) -> None:
    assert [method for method, _ in mail.requests if method == "tools/call"] == []
    assert mail.connections == 1, "nothing restarted it"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_page_elsewhere_learns_nothing_and_changes_nothing(
    window: Browser,
    victim: tuple[ServedConsole, FakeBackend],
    attacker_port: int,
    attack: str,
    host: str,
) -> None:
    # 127.0.0.1 is the same site as the console, where SameSite does not help; localhost is not.
    served, mail = victim
    window.open(f"http://{host}:{attacker_port}/")
    module = find_module(served)
    body = f"const [root, module, done] = arguments;{ATTACKS[attack]}"
    assert window.run_async(body, served.root, module) == "nothing"
    window.read_log()  # the browser notes what it did not do
    assert_untouched(mail)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_no_page_elsewhere_has_the_console_in_a_frame(
    window: Browser, victim: tuple[ServedConsole, FakeBackend], attacker_port: int, host: str
) -> None:
    served, _ = victim
    window.open(f"http://{host}:{attacker_port}/")
    body = (
        "const frame = document.createElement('iframe'); frame.src = arguments[0];"
        "frame.onload = () => arguments[1](); document.body.append(frame);"
    )
    window.run_async(body, f"{served.root}/console/servers/mail")
    window.command("POST", "frame", {"id": 0})
    try:
        assert window.find_all("#app") == []
    finally:
        window.command("POST", "frame", {"id": None})
    assert any("frame-ancestors" in line for line in window.read_log())


def find_module(served: ServedConsole) -> str:
    text = httpx2.get(f"{served.root}/console", timeout=TIMEOUT_S).text
    return text.partition('<script type="module" src="')[2].partition('"')[0]


async def ask_raw(served: ServedConsole, target: str, host: str = "") -> tuple[int, str]:
    """Send a request whose target no client would send; returns status and answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"GET {target} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{served.port}'}\r\n"
    writer.write(f"{head}Connection: close\r\n\r\n".encode("latin-1"))
    async with asyncio.timeout(TIMEOUT_S):
        answer = (await reader.read()).decode("utf-8", "replace")
    writer.close()
    return int(answer.split(" ", 2)[1]), answer.partition("\r\n\r\n")[2]


@pytest.fixture(scope="module")
def open_served(thread: GatewayThread) -> Generator[ServedConsole]:
    with thread.serve({"mail": fake("read", "write")}) as served:
        yield served


TRAVERSALS = [
    "/console/static/../files.py",
    "/console/static/{version}/../../files.py",
    "/console/static/{version}/../../../config/root.py",
    "/console/static/{version}/%2e%2e/%2e%2e/files.py",
    "/console/static/{version}/..%2f..%2ffiles.py",
    "/console/static/{version}/..%5c..%5cfiles.py",
    "/console/static/{version}/..\\..\\files.py",
    "/console/static/{version}/%252e%252e/files.py",
    "/console/static/{version}//etc/passwd",
    "/console/static/{version}/main.js%00.css",
    "/console/static/{version}/third_party/manifest.json",
    "/console/static/{version}/index.html",
    "/console/static//etc/passwd",
    "//etc/passwd",
    "/console/../../../../etc/passwd",
]


@pytest.mark.parametrize("target", TRAVERSALS)
async def test_no_path_leads_out_of_the_static_files(
    open_served: ServedConsole, target: str
) -> None:
    version = find_module(open_served).split("/")[3]
    status, body = await ask_raw(open_served, target.format(version=version))
    if status == 200:
        assert target.startswith("/console/../"), "only a screen that does not exist"
        assert '<div id="app">' in body
    else:
        assert status in (400, 404), status
    for secret in ("import ", "root:", '"sha256"'):
        assert secret not in body


FOREIGN_HOSTS = [
    "evil.example",
    "evil.example:{port}",
    "127.0.0.1.evil.example",
    "localhost.evil.example:{port}",
    "169.254.169.254",
    "127.0.0.1@evil.example",
    "[::ffff:1.2.3.4]:{port}",
]


@pytest.mark.parametrize("host", FOREIGN_HOSTS)
async def test_a_name_that_was_turned_to_this_machine_opens_nothing(
    open_served: ServedConsole, host: str
) -> None:
    module = find_module(open_served)
    paths = ("/", "/console", module, "/console/session", "/api/v1/stats", "/api/v1/events")
    for path in paths:
        status, body = await ask_raw(open_served, path, host.format(port=open_served.port))
        assert status in (400, 421), path
        assert "portico" not in body.lower() or "host" in body.lower()


A_PROFILE_MAY_READ = re.compile(
    r"(/api/v1/tools|/api/v1/servers|/v0\.1/servers)(/.*)?|/api/v1/events"
)
NO_PROFILE_MAY_READ = "/api/v1/servers/{name}/log"
PARAMETERS = {"{tool}": "read", "{id}": "1", "{call_id}": "1"}
PROFILES = Config.model_validate({"profiles": {"work": {"servers": ["mail"]}}})


@pytest.fixture
async def keyed() -> AsyncGenerator[ServedConsole]:
    keys = TestKeys()
    keys.add("all")
    keys.add("read", is_read_only=True)
    keys.add("work", profiles=("work",))
    keys.add("least", profiles=("work",), is_read_only=True)
    servers = {"mail": fake("read", "write"), "disk": fake("read")}
    async with serve_console(servers, PROFILES, keys=keys, token=TOKEN) as served:
        yield served


async def list_routes(http: httpx2.AsyncClient) -> list[tuple[str, str]]:
    """Return method and path of every documented route."""
    bearer = {"authorization": f"Bearer {TOKEN}"}
    described = (await http.get("/api/openapi.json", headers=bearer)).json()
    return [
        (method.upper(), path) for path, methods in described["paths"].items() for method in methods
    ]


@pytest.mark.parametrize("who", ["nobody", "all", "read", "work", "least"])
async def test_every_route_refuses_lower_rights(keyed: ServedConsole, who: str) -> None:
    """Each route of the API by each key, from the description: a new route that is open to lower
    rights has to be named above."""
    async with httpx2.AsyncClient(base_url=keyed.root, timeout=TIMEOUT_S) as http:
        headers = dict(JSON)
        if who != "nobody":
            reply = await http.post("/console/session", json={"credential": keyed.keys.texts[who]})
            headers["x-portico-proof"] = reply.json()["proof"]
        routes = await list_routes(http)
        assert len(routes) > 20
        for method, path in routes:
            is_call = (method, path) == ("POST", "/api/v1/calls")
            address = path
            for name in re.findall(r"\{\w+\}", path):
                address = address.replace(name, PARAMETERS.get(name, "disk"))
            # A HEAD of the stream ends; everything else is sent as it is.
            sent = "HEAD" if path.endswith("/events") else method
            content = b"{}" if sent not in ("GET", "HEAD") else None
            reply = await http.request(sent, address, headers=headers, content=content)
            status = reply.status_code
            if who == "nobody":
                assert status == 401, (method, path, status)
            elif is_call:
                assert status == 422, "the call itself is checked"
            elif who in ("work", "least"):
                is_open = A_PROFILE_MAY_READ.fullmatch(path) and path != NO_PROFILE_MAY_READ
                if method == "GET" and is_open:
                    assert "disk" not in reply.text or status == 404, (path, reply.text)
                else:
                    assert status == 403, (method, path, status)
            elif who == "read" and method != "GET":
                assert status == 403, (method, path, status)
            if path.startswith(("/api/v1/keys", "/api/v1/config", "/api/v1/changes")):
                assert status in (401, 403), (method, path, status)


@pytest.mark.parametrize("who", ["read", "work", "least"])
async def test_a_lesser_key_calls_no_tool_it_may_not(keyed: ServedConsole, who: str) -> None:
    async with httpx2.AsyncClient(base_url=keyed.root, timeout=TIMEOUT_S) as http:
        reply = await http.post("/console/session", json={"credential": keyed.keys.texts[who]})
        headers = {"x-portico-proof": reply.json()["proof"]}
        tool = "mail.write" if who in ("read", "least") else "disk.read"
        reply = await http.post("/api/v1/calls", headers=headers, json={"tool": tool})
        assert reply.status_code in (403, 404) or not reply.json()["ok"], reply.text
        assert "ran" not in reply.text


async def test_no_answer_stays_in_a_shared_cache(keyed: ServedConsole) -> None:
    async with httpx2.AsyncClient(base_url=keyed.root, timeout=TIMEOUT_S) as http:
        reply = await http.post("/console/session", json={"credential": keyed.keys.texts["all"]})
        assert reply.headers["cache-control"] == "no-store"
        headers = {"x-portico-proof": reply.json()["proof"]}
        for method, path in await list_routes(http):
            if method != "GET" or "{" in path or path.endswith("/events"):
                continue
            reply = await http.get(path, headers=headers)
            kept = reply.headers.get("cache-control", "")
            assert "public" not in kept, path
            assert any(word in kept for word in ("no-store", "no-cache", "private")), (path, kept)
            vary = {name.strip().lower() for name in reply.headers.get("vary", "").split(",")}
            assert {"authorization", "cookie", "x-portico-proof"} <= vary, (path, vary)
            assert reply.headers["x-content-type-options"] == "nosniff"


async def test_a_flood_of_pages_and_sessions_is_bounded(keyed: ServedConsole) -> None:
    """Streams: a person may hold eight; one more is refused, and those open go on."""
    async with httpx2.AsyncClient(base_url=keyed.root, timeout=TIMEOUT_S) as http:
        reply = await http.post("/console/session", json={"credential": keyed.keys.texts["all"]})
        headers = {"x-portico-proof": reply.json()["proof"]}
        async with AsyncExitStack() as streams:
            codes = [
                (
                    await streams.enter_async_context(
                        http.stream("GET", "/api/v1/events", headers=headers)
                    )
                ).status_code
                for _ in range(9)
            ]
        assert codes[:8] == [200] * 8
        assert codes[8] in (429, 503), codes


def test_the_description_of_the_api_names_no_secret(open_served: ServedConsole) -> None:
    text = httpx2.get(f"{open_served.root}/api/openapi.json", timeout=TIMEOUT_S).text
    json.loads(text)
    assert "portico_session" not in text


def test_a_copied_address_signs_nobody_in(
    window: Browser, thread: GatewayThread, attacker_port: int
) -> None:
    """A link with a code of somebody else's making signs in to nothing."""
    with thread.serve({"mail": fake("read")}, token=TOKEN) as served:
        window.open(f"http://localhost:{attacker_port}/")
        window.open(f"{served.root}/console#code={'A' * 43}")
        window.wait_for(".problem")
        wait_until(lambda: "#code" not in window.url)
        window.read_log()
