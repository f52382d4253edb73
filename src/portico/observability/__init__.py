"""The audit log, metrics and traces. Subscribes to events.

audit                                   one line per call, with MACs that reveal changes
audit_shipping                          lines sent on: stderr, syslog, OTLP
metrics → prometheus                    totals of events, gauges, the exposition format
tracing                                 OpenTelemetry spans
"""
