"""`portico console`: open the running gateway's console in the browser.

The address carries a code that signs in once, within a minute; it is behind `#`, which browsers
send to nobody. The session is the local user's, and stays valid when keys begin to be required.
--json: `{"url"}`.
"""

import os
import sys
import webbrowser

from cyclopts import Parameter

from portico.cli.commands.background import BackgroundOptions, require_gateway
from portico.cli.exit import EXIT_OK


@Parameter(name="*")
class ConsoleOptions(BackgroundOptions):
    """Options of `console`."""


_DEFAULTS = ConsoleOptions()


def console(*, options: ConsoleOptions = _DEFAULTS) -> int:
    """Print the console's address, and open it where there is a browser."""
    gateway = require_gateway(options.identify())
    answer = gateway.inspect({"what": "console_link"})
    url = f"{gateway.registration.url}/console"
    if code := answer["code"]:
        url += f"#code={code}"
    screen = options.make_screen()
    if screen.as_json:
        screen.write_json({"url": url})
        return EXIT_OK
    screen.write_text(url)
    if code:
        screen.write_text("It signs in once, within a minute.")
    sys.stdout.flush()
    if screen.is_stdout_terminal and _has_display():
        webbrowser.open(url)
    return EXIT_OK


def _has_display() -> bool:
    """Return whether a browser would open in a window, and not in this terminal."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
