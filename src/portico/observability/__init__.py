"""The audit log, metrics and traces. Subscribes to events.

audit → audit_chain            one line per call, with MACs that reveal changes
metrics → event_counter, metric_sources, event_loop_lag, prometheus
tracing                        OpenTelemetry spans
"""
