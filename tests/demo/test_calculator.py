"""The calculator is exact, and refuses what is not arithmetic."""

import pytest

from portico.demo import calculator


@pytest.mark.parametrize(
    ("expression", "decimal", "fraction"),
    [
        ("0.1 + 0.2", "0.3", "3/10"),
        ("(0.1 + 0.2) * 3", "0.9", "9/10"),
        ("1/3", "0.333333333333", "1/3"),
        ("2 ** 100", "1267650600228229401496703205376", "1267650600228229401496703205376"),
        ("2 ** -2", "0.25", "1/4"),
        ("-7 // 2", "-4", "-4"),
        ("-7 % 3", "2", "2"),
        ("sqrt(2.25)", "1.5", "3/2"),
        ("max(1, 2.5, 2) + min(3, -1) + abs(-4)", "5.5", "11/2"),
        ("round(2.345, 2) + floor(1.9) + ceil(1.1)", "5.34", "267/50"),
        (
            "0.12345678901234567890123 * 10",
            "1.234567890123",
            "12345678901234567890123/10000000000000000000000",
        ),
        ("1e3 + 1_000", "2000", "2000"),
        ("-0.0000000000001", "0", "-1/10000000000000"),
    ],
)
def test_expressions_are_evaluated_exactly(expression: str, decimal: str, fraction: str) -> None:
    assert calculator.evaluate(expression) == {
        "decimal": decimal,
        "fraction": fraction,
        "exact": True,
    }


def test_an_irrational_root_is_rounded_and_says_so() -> None:
    found = calculator.evaluate("sqrt(2)", decimals=18)
    assert (found["decimal"], found["exact"]) == ("1.414213562373095049", False)


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "1 +",
        "__import__('os')",
        "a.b",
        "[1]",
        "'x' * 3",
        "True",
        "1 if 2 else 3",
        "1/0",
        "5 % 0",
        "9**9**9",
        "1e999999999",
        "(10**4000) * (10**4000)",
        "2 ** 0.5",
        "sqrt(-1)",
        "sqrt(1, 2)",
        "pow(2, 3)",
    ],
)
def test_what_is_not_arithmetic_or_too_large_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):
        calculator.evaluate(expression)


def test_decimals_become_fractions() -> None:
    assert calculator.to_fraction("0.75") == {"fraction": "3/4", "mixed": "3/4", "error": "0"}
    assert calculator.to_fraction("-2.5")["mixed"] == "-2 1/2"
    assert calculator.to_fraction("3.14159", 10)["fraction"] == "22/7"
    for wrong in ("pi", "1/0", "1e999999999"):
        with pytest.raises(ValueError, match="is not a number"):
            calculator.to_fraction(wrong)


def test_changes_in_percent() -> None:
    assert calculator.percent_change(80, 100) == {
        "percent": "25",
        "factor": "1.25",
        "direction": "up",
    }
    assert calculator.percent_change(-10, -5)["percent"] == "50"
    with pytest.raises(ValueError, match="zero"):
        calculator.percent_change(0, 1)


def test_statistics() -> None:
    found = calculator.summarize_numbers([2, 4, 4, 4, 5, 5, 7, 9], sample=False)
    assert (found["mean"], found["median"], found["standard_deviation"], found["modes"]) == (
        5.0,
        4.5,
        2.0,
        [4],
    )
    assert calculator.summarize_numbers([1, 2, 3, 4])["quartiles"] == [1.75, 2.5, 3.25]
    assert calculator.summarize_numbers([7])["variance"] == 0


def test_interest_and_loans() -> None:
    assert calculator.compound_interest(1000, 5, 10, 1)["final"] == 1628.89
    assert calculator.compound_interest(0, 0, 1, 12, 100) == {
        "final": 1200,
        "paid_in": 1200,
        "interest": 0,
        "periods": 12,
    }
    assert calculator.loan_payment(200_000, 6, 360)["monthly_payment"] == 1199.10
    assert calculator.loan_payment(1200, 0, 12)["monthly_payment"] == 100


def test_number_theory() -> None:
    assert calculator.factorize(360) == {"factors": {"2": 3, "3": 2, "5": 1}, "is_prime": False}
    assert calculator.factorize(999_999_999_989)["is_prime"]
    assert calculator.factorize(1) == {"factors": {}, "is_prime": False}
    assert calculator.gcd_and_lcm([12, 18]) == {"gcd": 6, "lcm": 36}


def test_bases() -> None:
    assert calculator.convert_base("255", 10, 16) == "ff"
    assert calculator.convert_base("0xff", 16, 2) == "11111111"
    assert calculator.convert_base("-z", 36, 10) == "-35"
    assert calculator.convert_base("0") == "0"
    with pytest.raises(ValueError, match="base 2"):
        calculator.convert_base("12", 2, 10)
