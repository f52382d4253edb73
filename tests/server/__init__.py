"""Tests of the client side: HTTP, stdio, sessions and the handling of requests."""
