"""The documents are tried, not believed: examples run, links lead somewhere, the reference is the
code."""
