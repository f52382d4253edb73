"""What scripts keep for the next ones."""

from portico.callers import Caller
from portico.scripts.script_context import ScriptStateStore

ANN, BOB = Caller("1", "ann"), Caller("2", "bob")


def test_each_caller_has_its_own():
    memory = ScriptStateStore()
    assert memory.store(ANN, {"a": [1, {"b": None}]}) == ""
    assert memory.load(ANN) == {"a": [1, {"b": None}]}
    assert memory.load(BOB) == {}


def test_what_was_read_can_be_changed_without_changing_what_is_kept():
    memory = ScriptStateStore()
    memory.store(ANN, {"a": [1]})
    memory.load(ANN)["a"].append(2)
    assert memory.load(ANN) == {"a": [1]}


def test_null_lets_go_of_a_value_and_the_last_one_of_the_caller():
    memory = ScriptStateStore()
    memory.store(ANN, {"a": 1, "b": 2})
    memory.store(ANN, {"a": None})
    assert memory.load(ANN) == {"b": 2}
    memory.store(ANN, {"b": None})
    assert len(memory) == 0


def test_what_is_too_much_is_refused_and_the_rest_is_kept_as_it_was():
    memory = ScriptStateStore(max_bytes=100)
    memory.store(ANN, {"a": "x" * 50})
    said = memory.store(ANN, {"a": "y" * 200, "b": 1})
    assert "Not stored" in said
    assert "'a'" in said
    assert memory.load(ANN) == {"a": "x" * 50, "b": 1}


def test_what_nobody_adds_to_goes_after_a_while():
    now = [0.0]
    memory = ScriptStateStore(ttl_s=10, clock=lambda: now[0])
    memory.store(ANN, {"a": 1})
    now[0] = 9
    memory.store(ANN, {"b": 2})
    now[0] = 18
    assert memory.load(ANN) == {"a": 1, "b": 2}
    now[0] = 19
    assert memory.load(ANN) == {}
    assert len(memory) == 0


def test_of_too_many_callers_those_go_that_stored_longest_ago():
    memory = ScriptStateStore(max_owners=2)
    for caller in (ANN, BOB, ANN, Caller("3", "eve")):
        memory.store(caller, {"a": 1})
    assert memory.load(BOB) == {}
    assert memory.load(ANN) == {"a": 1}


def test_where_nothing_may_be_kept_it_is_said():
    assert "Nothing is kept" in ScriptStateStore(max_bytes=0).store(ANN, {"a": 1})
    assert ScriptStateStore(max_bytes=0).store(ANN, {}) == ""


def test_a_caller_may_keep_so_many_values():
    memory = ScriptStateStore()
    refused = memory.store(ANN, {f"k{number}": 1 for number in range(2_001)})
    assert "'k2000'" in refused
    assert len(memory.load(ANN)) == 2_000
    assert memory.store(ANN, {"k0": None, "new": 1}) == ""
