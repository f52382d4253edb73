"""Schema migrations, in order. A released file here never changes."""
