"""One server's lifecycle: start, health checks, circuit breaker, restart and stop.

lifecycle           states, single start, connection loss, stop
supervisor          `Upstream`: adds health checks, memory limit, restart, draining
connection_attempt  one attempt to connect
instances           open connections of one server, and their users
draining            connections that finish their requests before they are closed
circuit_breaker     whether a server may be started; pure
health_checks       pings of silent servers
process_memory      resident memory of server processes
start_slots         limit of concurrent starts in the gateway
status              status record and error texts; pure
"""
