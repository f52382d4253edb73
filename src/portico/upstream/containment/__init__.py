"""Containment of servers that are started as processes: what each gets, and what it was denied.

granted_paths   what programs and their entries need
contained_start the specification of one start, or why there is none
machine_support what this machine can contain; tried out once
denials         what a server that fails was denied, by what it says

The restrictions themselves are in `portico.containment`.
"""
