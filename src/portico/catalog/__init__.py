"""Catalog: what exists. One immutable snapshot of every server's offer, replaced whole, read
without a lock.

tool (immutable, hashed) · listing (asking a server for all it offers, saving what can be saved) ·
address (names people and models write, resolved forgivingly) · snapshot (what is known now) · sync
(keeping it so) · schema, references, constraints, visible (what an input schema says, and what of
it can be seen) · documents (what search sees) uri_template (can an address be one of a server's?)
"""
