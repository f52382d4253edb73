"""Peers: other gateways at the same jobs, in the same run, on the same machine.

Programs: replay (recorded servers as real ones) · fastmcp_gateway (FastMCP as a gateway, in its own
environment)

installation (each peer in an environment of its own, at one version) · upstreams (what stands
behind a gateway) · gateways (how each is set, started and asked) · contextforge (the one that has
to be filled first) · seat (one that runs) · cost (tokens, start, memory) · speed (a call) · finding
(search) · siblings (calls beside slow and dead servers)
"""
