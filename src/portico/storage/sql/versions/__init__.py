"""Every change of the tables, in order. A file here never changes once it was released."""
