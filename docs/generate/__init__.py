"""The reference, written from the code: `python -m docs.generate` fills in every page anew,
`--check` only looks.

A page's head, above its mark, is written by hand and stays; below the mark everything is ours. One
module for each page: it reads the code and gives Markdown back. pages (which there are) →
configuration, cli, metatools, rest, resources, metrics, errors; markdown has the few forms that
they share.
"""
