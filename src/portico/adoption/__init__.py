"""Adoption: takes the servers that clients already have, and points those clients at Portico."""
