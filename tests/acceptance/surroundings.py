"""What stands around the user: a proxy that must be used, a certificate authority that must be
trusted, a Kubernetes configuration, an SSH agent, a Docker daemon, and a remote MCP server.

Everything is on loopback. The host names exist only behind the proxy, so a server that is started
without the proxy variables or without the authority's certificate cannot reach them.
"""

from __future__ import annotations

import datetime
import json
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import StreamRequestHandler, ThreadingTCPServer

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PAGE = "Tea is made of leaves and water."
REMOTE = "mcp.acceptance.test"
HOSTS = ("handbook.acceptance.test", REMOTE, "docs.aws.amazon.com", "context7.com", "mui.com")
LIBRARY = {"id": "/tea/leaves", "title": "Tea leaves", "description": PAGE, "state": "finalized"}
KUBECONFIG = """apiVersion: v1
kind: Config
current-context: tea
clusters: [{name: tea, cluster: {server: "https://127.0.0.1:1"}}]
contexts: [{name: tea, context: {cluster: tea, user: tea}}]
users: [{name: tea, user: {}}]
"""
READY_S = 60.0


@dataclass(frozen=True)
class Surroundings:
    """Variables that the user's shell has, and addresses that the client files name."""

    variables: Mapping[str, str]
    places: Mapping[str, str]


@contextmanager
def surround(folder: Path, remote: Sequence[str], path: str) -> Generator[Surroundings]:
    """Serve all of it until the end; `remote` is the command of an MCP server that listens on the
    port in PORT, and `path` the PATH it needs."""
    with ExitStack() as stack:
        authority, certificate = _make_certificates(folder)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        port = _find_free_port()
        stack.enter_context(_run_remote(remote, port, {"PATH": path, "HOME": str(folder)}))
        relay = _Relay(("127.0.0.1", 0), port, context)
        pages = ThreadingHTTPServer(("127.0.0.1", 0), _Pages)
        pages.socket = context.wrap_socket(pages.socket, server_side=True)
        proxy = _Proxy(("127.0.0.1", 0), pages.server_address[1], relay.server_address[1])
        docker = ThreadingHTTPServer(("127.0.0.1", 0), _Docker)
        for server in (relay, pages, proxy, docker):
            stack.enter_context(_serve(server))
        agent = stack.enter_context(_listen_as_agent(folder / "agent.sock"))
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(KUBECONFIG, "utf-8")
        address = f"http://127.0.0.1:{proxy.server_address[1]}"
        variables = {
            "SSL_CERT_FILE": str(authority),
            "NODE_EXTRA_CA_CERTS": str(authority),
            "HTTPS_PROXY": address,
            "NO_PROXY": "127.0.0.1,localhost",
            "KUBECONFIG": str(kubeconfig),
            "SSH_AUTH_SOCK": agent,
            "DOCKER_HOST": f"tcp://127.0.0.1:{docker.server_port}",
        }
        yield Surroundings(variables, {"remote": f"https://{REMOTE}/mcp", "port": str(port)})


@contextmanager
def _serve(server: ThreadingTCPServer | ThreadingHTTPServer) -> Generator[None]:
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()


class _Proxy(ThreadingTCPServer):
    """Connects the known names to their services, and nothing else to anything."""

    def __init__(self, address: tuple[str, int], pages: int, relay: int) -> None:
        super().__init__(address, _Connect)
        self.ports = dict.fromkeys(HOSTS, pages) | {REMOTE: relay}


class _Connect(StreamRequestHandler):
    def handle(self) -> None:
        request = self.rfile.readline(4096).split()
        while self.rfile.readline(4096).strip():
            pass
        assert isinstance(self.server, _Proxy)
        host = request[1].decode().rpartition(":")[0] if len(request) > 1 else ""
        port = self.server.ports.get(host)
        if request[:1] != [b"CONNECT"] or port is None:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
            return
        with socket.create_connection(("127.0.0.1", port)) as target:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
            _pipe_both_ways(self.connection, target)


class _Relay(ThreadingTCPServer):
    """Ends TLS in front of a plain HTTP server."""

    def __init__(self, address: tuple[str, int], port: int, context: ssl.SSLContext) -> None:
        super().__init__(address, _Decrypt)
        self.port = port
        self.context = context


class _Decrypt(StreamRequestHandler):
    def handle(self) -> None:
        assert isinstance(self.server, _Relay)
        with (
            suppress(OSError),
            self.server.context.wrap_socket(self.connection, server_side=True) as plain,
            socket.create_connection(("127.0.0.1", self.server.port)) as target,
        ):
            _pipe_both_ways(plain, target)


def _pipe_both_ways(one: socket.socket, other: socket.socket) -> None:
    back = threading.Thread(target=_pipe, args=(other, one), daemon=True)
    back.start()
    _pipe(one, other)
    back.join()


def _pipe(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class _Quiet(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""

    def answer(self, kind: str, body: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Pages(_Quiet):
    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self.answer("application/json", json.dumps({"results": [LIBRARY]}).encode())
        elif self.path.endswith(".html"):
            page = f"<html><body><main><h1>Tea</h1><p>{PAGE}</p></main></body></html>"
            self.answer("text/html; charset=utf-8", page.encode())
        else:
            self.answer("text/plain; charset=utf-8", PAGE.encode())


class _Docker(_Quiet):
    def do_GET(self) -> None:
        if "/containers/json" in self.path:
            tea = {"Id": "7ea" * 21, "Names": ["/tea"], "Image": "tea", "State": "running"}
            self.answer("application/json", json.dumps([tea]).encode())
        elif "version" in self.path:
            self.answer("application/json", b'{"ApiVersion": "1.44", "Version": "26.0"}')
        else:
            self.answer("text/plain", b"OK")

    do_HEAD = do_GET


@contextmanager
def _listen_as_agent(path: Path) -> Generator[str]:
    """The socket of an SSH agent; nobody asks it for a key."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        yield str(path)


@contextmanager
def _run_remote(command: Sequence[str], port: int, env: Mapping[str, str]) -> Generator[None]:
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(
        command, env={**env, "PORT": str(port)}, stdin=quiet, stdout=quiet, stderr=quiet
    )
    try:
        _wait_until_listening(port, process)
        yield
    finally:
        process.kill()
        process.wait()


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + READY_S
    while process.poll() is None and time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"the remote server does not listen (exit code {process.returncode})")


def _find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _make_certificates(folder: Path) -> tuple[Path, Path]:
    """An authority's certificate, and key and certificate it issued for HOSTS in one file."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "Acceptance CA")])
    authority = (
        _start_certificate(issuer, issuer, authority_key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOSTS[0])])
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    certificate = (
        _start_certificate(subject, issuer, key.public_key())
        .add_extension(names, critical=False)
        .add_extension(issued_by, critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    trusted = folder / "authority.pem"
    trusted.write_bytes(authority.public_bytes(pem))
    served = folder / "served.pem"
    served.write_bytes(private + certificate.public_bytes(pem))
    return trusted, served


def _start_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )
