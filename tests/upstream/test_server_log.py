"""The log of a server: numbered, bounded, kept."""

from portico.upstream.server_log import MAX_CHARS, MAX_ENTRIES, ServerLog


def test_a_reader_goes_on_where_it_was():
    log = ServerLog()
    log.add_stderr(["one", "", "  ", "two"])
    read = log.read()
    assert [(entry.sequence, entry.text) for entry in read] == [(1, "one"), (2, "two")]
    log.add_state("down", "it exited")
    assert [(entry.state, entry.text) for entry in log.read(2)] == [("down", "it exited")]
    assert log.read(3) == []


def test_it_keeps_the_last_entries_and_counts_all():
    log = ServerLog()
    log.add_stderr(str(number) for number in range(2 * MAX_ENTRIES))
    log.skip(10)
    log.add_stderr(["last"])
    assert len(log.read()) == MAX_ENTRIES
    assert [entry.sequence for entry in log.read()[-2:]] == [2 * MAX_ENTRIES, 2 * MAX_ENTRIES + 11]


def test_long_lines_take_no_more_than_their_share():
    log = ServerLog()
    log.add_stderr("x" * 1_000 for _ in range(MAX_ENTRIES))
    assert sum(len(entry.text) for entry in log.read()) == MAX_CHARS
