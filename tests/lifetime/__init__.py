"""No process outlives the gateway, and none of its doings pile up.

marks (find every process a test started) → gateway_process (a gateway in a process of its own) →
the tests
"""
