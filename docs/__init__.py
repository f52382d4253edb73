"""The documentation: pages by kind, the site's settings (`conf.py`), and what writes the reference
(`generate`)."""
