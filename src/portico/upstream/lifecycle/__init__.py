"""One server's lifecycle: when it starts, whether it may be tried, how it is checked, replaced and
stopped.

lifecycle (states, single start, loss, end) → connection_attempt, instances, draining, status
supervisor (adds) circuit_breaker, health_checks, process_memory, start_slots
"""
