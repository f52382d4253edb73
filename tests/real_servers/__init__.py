"""Servers written by third parties, called directly and through Portico: same tools, same results.

    python -m tests.real_servers install [DIR]     npm and PyPI packages, pinned, into DIR (default .cache/real-servers)
    python -m tests.real_servers compare [DIR]     every comparison of the tests, as a table

servers.yaml (what is installed, how it is started, what it is asked) → catalogue; installation and
sandbox prepare, hosting starts a server, conversation + stdio_wire + http_wire talk raw JSON-RPC;
runs asks a server the same questions over each way in; comparison says what differs (pure); report
prints it.
"""  # noqa: E501
