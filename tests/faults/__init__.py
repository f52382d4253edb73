"""The fault matrix: every way a server can misbehave, on every wire it can be done on, through a
whole gateway.

table (what may happen) · misbehaving (the server that does it) · matrix (doing it) · test_matrix
(what is promised)
"""
