"""The audit log, metrics and traces. Subscribes to events.

audit → audit_chain            one line for each call, with MACs that show changes
metrics → event_counter, metric_sources, event_loop_lag, prometheus
tracing                        OpenTelemetry spans
"""
