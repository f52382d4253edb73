"""Portico: one MCP endpoint in front of all of a person's MCP servers.

The agent sees a few small tools; it finds, reads and runs the thousands behind them when it needs them.
Importing the package does nothing; `portico.app.Gateway` is where the house is put together.
"""

__version__ = "0.1.0"
