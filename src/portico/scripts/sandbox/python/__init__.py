"""Python scripts on pydantic-monty, an interpreter without access to the outside, in processes.

engine           the pool of processes, one script at a time in each
monty_driver     drives one script, in a thread
prelude          definitions available to a script
script_io        values as JSON text, printed output
faults           errors of the interpreter as faults
process_limits   limits of the system
launcher, boot   start each process inside the jail
"""
