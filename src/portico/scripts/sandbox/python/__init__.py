"""Python scripts on pydantic-monty, an interpreter without access to the outside, in processes.

engine           the pool of processes, one script at a time in each
monty_driver     drives one script, in a thread
prelude          definitions available to a script; errors of the interpreter as faults
script_io        values as JSON text, printed output
launcher, boot   start each process inside the jail, with limits of the system
"""
