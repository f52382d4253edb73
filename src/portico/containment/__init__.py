"""Restrictions that the Linux kernel puts on a process and all it starts. Standard library only.

landlock      which files, TCP ports, signals and abstract sockets
seccomp       assembles and installs filters of system calls
privileges    no new privileges, no capabilities
server_filter the filter of a contained server
namespaces    a file system, processes and network of its own
connections   connections of a server with `network: loopback`, made for it
launcher      the program that contains itself and executes a server
specification what a launcher is told
support       what this machine allows

The jail of script workers (`scripts/sandbox/worker/jail.py`) uses the first three.
"""
