"""Chance keeps its bounds, and repeats with a seed."""

import uuid

import pytest

from portico.demo import chance


def test_dice_stay_on_their_faces() -> None:
    rolled = chance.roll_dice("10d4 + 2")
    assert len(rolled["rolls"]) == 10
    assert set(rolled["rolls"]) <= {1, 2, 3, 4}
    assert rolled["total"] == sum(rolled["rolls"]) + 2
    assert len(chance.roll_dice("D20")["rolls"]) == 1


@pytest.mark.parametrize("dice", ["", "6", "0d6", "101d6", "2d1", "2d6+", "d"])
def test_what_are_no_dice_is_refused(dice: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        chance.roll_dice(dice)


def test_a_seed_repeats() -> None:
    assert chance.roll_dice("5d6", seed=1) == chance.roll_dice("5d6", seed=1)
    assert chance.random_numbers(0, 1, 3, whole=False, seed=2) == chance.random_numbers(
        0, 1, 3, whole=False, seed=2
    )
    assert chance.shuffle_items(["a", "b", "c"], seed=3) == chance.shuffle_items(
        ["a", "b", "c"], seed=3
    )


def test_numbers_stay_in_range() -> None:
    assert set(chance.random_numbers(2, 3, 200)) == {2, 3}
    assert all(0.5 <= number <= 0.6 for number in chance.random_numbers(0.5, 0.6, 50, whole=False))
    for wrong in ((3, 2), (0.5, 2)):
        with pytest.raises(ValueError, match="minimum"):
            chance.random_numbers(*wrong)


def test_picking() -> None:
    assert sorted(chance.pick_items(["a", "b", "c"], 3)) == ["a", "b", "c"]
    assert chance.pick_items(["a", "b"], 1, [0, 1]) == ["b"]
    assert len(chance.pick_items(["a"], 5, repeat=True)) == 5
    with pytest.raises(ValueError, match="only 1"):
        chance.pick_items(["a", "b"], 2, [0, 1])
    with pytest.raises(ValueError, match="one weight per item"):
        chance.pick_items(["a", "b"], 1, [1])


def test_teams_share_everyone_evenly() -> None:
    teams = chance.shuffle_items([str(number) for number in range(7)], 3)
    assert sorted(len(team) for team in teams) == [2, 2, 3]
    assert sorted(name for team in teams for name in team) == [str(number) for number in range(7)]


def test_a_password_has_every_kind_of_character() -> None:
    for _ in range(50):
        password = chance.make_password(8)
        assert len(password) == 8
        assert any(char.islower() for char in password)
        assert any(char.isupper() for char in password)
        assert any(char.isdigit() for char in password)
        assert any(char in chance.SYMBOLS for char in password)
        assert not set(password) & set(chance.LOOKALIKES)
    assert chance.make_password(12, symbols=False).isalnum()


@pytest.mark.parametrize("version", ["4", "7"])
def test_uuids_are_of_their_version(version: str) -> None:
    made = chance.make_uuids(version, 20)  # pyright: ignore[reportArgumentType]
    assert len(set(made)) == 20
    assert {(uuid.UUID(one).version, uuid.UUID(one).variant) for one in made} == {
        (int(version), uuid.RFC_4122)
    }
