"""Embedding: the gateway as a library, for agents written in Python."""
