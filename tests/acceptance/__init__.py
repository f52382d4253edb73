"""Plays a new user: real clients, real servers, before and after Portico."""
