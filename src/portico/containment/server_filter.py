"""The filter of system calls of a contained server. Pure.

Servers are any programs, so it lists what is denied: what reaches other processes, the kernel's
insides, or the network that it shall not have. Denied calls fail with EPERM, as if the user had no
right to them.
"""

import errno

from portico.containment.seccomp import (
    ALLOW,
    AND,
    ENOSYS,
    EPERM,
    EQUAL,
    FIRST_ARGUMENT,
    FOURTH_ARGUMENT,
    LOAD,
    MACHINES,
    NO_NUMBER,
    NOTIFY,
    RETURN,
    SECOND_ARGUMENT,
    THIRD_ARGUMENT,
    BpfInstruction,
    allow_unless,
    check_architecture,
    decide_all,
    make_instruction,
    when_equal,
)

DENIED: dict[str, tuple[int, int]] = {  # x86_64, aarch64
    # Other processes.
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "process_madvise": (440, 440),
    "migrate_pages": (256, 238), "move_pages": (279, 239),
    # Namespaces and mounts.
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432),
    "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    # Parts of the kernel that servers need not, and attacks do.
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "create_module": (174, NO_NUMBER), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116), "acct": (163, 89),
    "quotactl": (179, 60), "quotactl_fd": (443, 443), "nfsservctl": (180, 42), "iopl": (172, -1),
    "ioperm": (173, NO_NUMBER), "modify_ldt": (154, NO_NUMBER), "lookup_dcookie": (212, 18),
    "fanotify_init": (300, 262), "vhangup": (153, 58), "sethostname": (170, 161),
    "setdomainname": (171, 162), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "clock_adjtime": (305, 266), "adjtimex": (159, 171), "uselib": (134, NO_NUMBER),
    "ustat": (136, NO_NUMBER), "_sysctl": (156, NO_NUMBER),
}  # fmt: skip
SHARED_MEMORY: dict[str, tuple[int, int]] = {
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
}  # fmt: skip
"""Denied where it would share them with all programs of the machine."""
CONNECTING: dict[str, tuple[int, int]] = {
    "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
}  # fmt: skip
"""Made by another process for a server that may reach this machine only (`connections`)."""
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_SOCKET = (41, 198)
_SOCKETPAIR = (53, 199)
_IOCTL = (16, 29)
_SENDTO = (44, 206)
_SENDMSG = (46, 211)
_SENDMMSG = (307, 269)

_NAMESPACE_FLAGS = 0x7E02_0000
"""Flags of `clone` for new namespaces: network, processes, users, IPC, UTS, cgroups, mounts."""
_TERMINAL_INPUT = 0x5412
_TERMINAL_SELECTION = 0x541C
"""ioctl requests that type into a terminal."""
_FAST_OPEN = 0x2000_0000
"""Flag of sends that connect too, past checks of `connect`."""
_UNIX = 1
_INTERNET = (2, 10)
_NETLINK = 16
_STREAM = 1
_TYPE_MASK = 0xF
_TCP = 6
_NO_FAMILY = 0x0005_0000 | errno.EACCES


def build_server_filter(
    machine: str, network: str, *, has_namespaces: bool
) -> tuple[BpfInstruction, ...]:
    """Build the filter for a machine; raises KeyError if it has no table."""
    column, architecture = MACHINES[machine]
    tables = [DENIED] if has_namespaces else [DENIED, SHARED_MEMORY]
    steps = check_architecture(architecture)
    for table in tables:
        steps += decide_all((numbers[column] for numbers in table.values()), EPERM)
    # Its flags are in memory, where a filter cannot look; the C library falls back to `clone`.
    steps += decide_all((_CLONE3[column],), ENOSYS)
    steps += allow_unless(_CLONE[column], FIRST_ARGUMENT, _NAMESPACE_FLAGS, EPERM)
    steps += _deny_terminal_input(_IOCTL[column])
    for numbers, argument in (
        (_SENDTO, FOURTH_ARGUMENT),
        (_SENDMSG, THIRD_ARGUMENT),
        (_SENDMMSG, FOURTH_ARGUMENT),
    ):
        steps += allow_unless(numbers[column], argument, _FAST_OPEN, EPERM)
    steps += when_equal(_SOCKET[column], _decide_family(network, has_namespaces=has_namespaces))
    steps += when_equal(_SOCKETPAIR[column], _allow_only(FIRST_ARGUMENT, _UNIX))
    if network == "loopback":
        steps += decide_all((numbers[column] for numbers in CONNECTING.values()), NOTIFY)
    return (*steps, make_instruction(RETURN, ALLOW))


def _deny_terminal_input(number: int) -> list[BpfInstruction]:
    return when_equal(
        number,
        (
            make_instruction(LOAD, SECOND_ARGUMENT),
            *decide_all((_TERMINAL_INPUT, _TERMINAL_SELECTION), EPERM),
            make_instruction(RETURN, ALLOW),
        ),
    )


def _allow_only(argument: int, *values: int) -> list[BpfInstruction]:
    return [
        make_instruction(LOAD, argument),
        *decide_all(values, ALLOW),
        make_instruction(RETURN, _NO_FAMILY),
    ]


def _decide_family(network: str, *, has_namespaces: bool) -> list[BpfInstruction]:
    """Decide about a new socket by its family.

    Unix sockets are allowed where it sees only files of its own, else anybody's socket could be
    connected to. Without namespaces there is no loopback of its own either.
    """
    families = [_UNIX] if has_namespaces else []
    steps = [make_instruction(LOAD, FIRST_ARGUMENT), *decide_all(families, ALLOW)]
    if network == "loopback":
        stream = [
            make_instruction(LOAD, SECOND_ARGUMENT),
            make_instruction(AND, _TYPE_MASK),
            make_instruction(EQUAL, _STREAM, 1, 0),
            make_instruction(RETURN, _NO_FAMILY),
            *_allow_only(THIRD_ARGUMENT, 0, _TCP),
        ]
    else:
        # Other protocols than TCP and UDP pass by the rules about ports.
        stream = _allow_only(THIRD_ARGUMENT, 0, _TCP, 17, 1, 58)
    if network != "none" or has_namespaces:
        for family in _INTERNET:
            steps += when_equal(family, stream)
        steps += when_equal(_NETLINK, _allow_only(THIRD_ARGUMENT, 0))
    return [*steps, make_instruction(RETURN, _NO_FAMILY)]
