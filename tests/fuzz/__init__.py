"""Generated noise against the whole gateway: arguments, frames, listings and answers that nobody
would write by hand.

Every run has the same examples. `PORTICO_FUZZ=20` has twenty times as many,
`--hypothesis-profile=default` others.
`running` (a loop, watched from outside) · `wires` (every way in) · `noise`, `frames`, `definitions` (what is said)
· `judging` (what no answer may be) · `schemas`, `paths` (what makes a validator and JMESPath work
hard) · `pauses` (the same by hand, for minutes, timed)
"""
