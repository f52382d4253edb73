"""Generated noise against the whole gateway: arguments, frames, listings and answers that nobody
would write by hand.

Every run has the same examples: a third of them by default, all with `PORTICO_FUZZ=1` as in
`.ci/run`, twenty times as many with `PORTICO_FUZZ=20`, others with `--hypothesis-profile=default`.

loop_thread: an event loop that is watched from outside
transports: every way of a client into the gateway
noise, frames, definitions: generated values, messages and tool definitions
answer_checks: what no answer may contain
schemas, paths: expensive input for a validator and for JMESPath
pauses: the same cases by hand, for minutes, timed
"""
