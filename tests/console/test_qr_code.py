"""The QR code on Connect, read by a decoder of others (jsqr, an npm package, for tests only)."""

from collections.abc import Generator

import pytest

from tests.conformance.suite import SuiteMissing, find_console_package
from tests.console.browser import Browser
from tests.console.pages import open_page
from tests.console.served import GatewayThread, ServedConsole
from tests.console.test_screens import make_mail

MOST_BYTES = 180
ADDRESS = "https://mcp.example.org/mcp"
ENCODE_AND_READ = """
const [module, texts, done] = arguments;
const read = rows => {
  const scale = 4, border = 4, size = (rows.length + 2 * border) * scale;
  const pixels = new Uint8ClampedArray(size * size * 4).fill(255);
  for (let y = 0; y < size; y += 1) for (let x = 0; x < size; x += 1) {
    const row = rows[Math.floor(y / scale) - border];
    const at = (y * size + x) * 4;
    if (row?.[Math.floor(x / scale) - border]) pixels[at] = pixels[at + 1] = pixels[at + 2] = 0;
  }
  return jsQR(pixels, size, size)?.data ?? null;
};
import(module).then(({encodeQr}) => done(texts.map(text => {
  const rows = encodeQr(text);
  return rows && read(rows);
})), error => done(String(error)));
"""
READ_DRAWN = """
const done = arguments[0];
const drawn = document.querySelector('svg.qr').cloneNode(true);
drawn.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
drawn.querySelector('.qr-light').setAttribute('fill', '#fff');
const size = 300;
drawn.setAttribute('width', size);
drawn.setAttribute('height', size);
const image = new Image();
image.onload = () => {
  const canvas = Object.assign(document.createElement('canvas'), {width: size, height: size});
  const context = canvas.getContext('2d');
  context.drawImage(image, 0, 0, size, size);
  done(jsQR(context.getImageData(0, 0, size, size).data, size, size)?.data ?? null);
};
image.onerror = () => done('not drawn');
image.src = 'data:image/svg+xml;base64,' + btoa(drawn.outerHTML);
"""


FIND_MODULE = """
const names = performance.getEntriesByType('resource').map(entry => entry.name);
return names.find(name => name.endsWith('/qr_code.js'));
"""


@pytest.fixture(scope="module")
def decoder() -> str:
    """The source of jsqr, which makes itself `jsQR` of the page."""
    try:
        _, package = find_console_package("jsqr")
    except SuiteMissing as missing:
        pytest.skip(f"QR codes are not read: {missing}")
    return (package / "dist" / "jsQR.js").read_text("utf-8")


@pytest.fixture(scope="module")
def served(
    thread: GatewayThread, tmp_path_factory: pytest.TempPathFactory
) -> Generator[ServedConsole]:
    folder = tmp_path_factory.mktemp("qr")
    with thread.serve({"mail": make_mail()}, data_dir=folder) as opened:
        yield opened


def test_texts_of_every_length_are_read_by_a_decoder(
    window: Browser, served: ServedConsole, decoder: str
) -> None:
    open_page(window, served, "connect")
    window.run(decoder)
    whole = ("https://ä.example/mcp?" + "x7/" * 60).encode()
    texts = [whole[:length].decode(errors="ignore") for length in range(1, MOST_BYTES + 1)]
    assert window.run_async(ENCODE_AND_READ, window.run(FIND_MODULE), texts) == texts


def test_a_text_that_is_too_long_has_no_code(
    window: Browser, served: ServedConsole, decoder: str
) -> None:
    open_page(window, served, "connect")
    window.run(decoder)
    texts = ["x" * (MOST_BYTES + 1)]
    assert window.run_async(ENCODE_AND_READ, window.run(FIND_MODULE), texts) == [None]


def test_the_code_of_an_address_for_another_device_can_be_scanned(
    window: Browser, served: ServedConsole, decoder: str
) -> None:
    open_page(window, served, "connect")
    window.wait_for(".other-device", "this machine's alone")
    assert not window.find_all("svg.qr")
    window.fill("#other-address", "https://ana:secret@mcp.example.org")
    window.wait_for(".other-device .warning", "without a name or a password")
    assert not window.find_all("svg.qr")
    window.fill("#other-address", "https://mcp.example.org")
    window.wait_for(".qr-box", ADDRESS)
    window.run(decoder)
    assert window.run_async(READ_DRAWN) == ADDRESS
