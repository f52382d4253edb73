"""`portico doctor`: finds what is wrong with a set-up, where, and how to repair it.

It reads, starts and lists servers, and changes nothing.

finding         one finding, and where it is in the files
lenient_config  files → the parts of a configuration that can be understood, and their errors
probe           starts, initializes and lists every server, concurrently
…_checks        the checks, one module for each subject
examination     runs everything → a report, which `commands.doctor` shows
"""
