"""Tests named after the rows of docs/requirements.md that tool disclosure has to meet."""
