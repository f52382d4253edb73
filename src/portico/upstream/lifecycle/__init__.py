"""One server's lifecycle: start, health checks, circuit breaker, restart and stop.

server_lifecycle    states, single start, connection loss, stop
supervisor          `Upstream`: adds health checks, memory limit, restart, draining
connection_attempt  one attempt to connect, and the limit of concurrent starts
instances           open connections of one server, their users, and their end
restart_circuit_breaker  whether a server may be started; pure
health_checks       pings of silent servers, and the memory of their processes
status              status record and error texts; pure
"""
