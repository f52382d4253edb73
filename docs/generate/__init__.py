"""Generates the reference pages from the code: `python -m docs.generate`; `--check` only compares.

The text above a page's mark is written by hand and stays; below the mark everything is generated.
One module for each page reads the code and returns Markdown: configuration, cli, metatools, rest,
resources, metrics, errors. `pages` lists them, `markdown` has what they share.
"""
