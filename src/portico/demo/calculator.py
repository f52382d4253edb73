"""Calculator: exact arithmetic with fractions; decimals only in the result."""

import ast
import math
import operator
import statistics
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal, localcontext
from fractions import Fraction
from typing import Annotated, Any

from pydantic import Field

from portico.demo.tool_factory import make_read_only_tool

MAX_EXPRESSION = 500
MAX_BITS = 14_000
"""About 4,200 digits; longer numbers are refused."""
MAX_EXPONENT = 4_000
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_OPERATORS: Mapping[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: lambda left, right: Fraction(left // right),
    ast.Mod: operator.mod,
}

Decimals = Annotated[
    int, Field(ge=0, le=100, description="Digits after the decimal point in the decimal form.")
]


def evaluate(
    expression: Annotated[
        str,
        Field(
            max_length=MAX_EXPRESSION,
            description=(
                "Numbers with + - * / // % ** and parentheses, and abs, min, max, round, "
                "floor, ceil, sqrt."
            ),
            examples=["(0.1 + 0.2) * 3"],
        ),
    ],
    decimals: Decimals = 12,
) -> dict[str, Any]:
    """Evaluate an arithmetic expression exactly.

    0.1 + 0.2 is 0.3 here: numbers are fractions, never floats. Only the square root of a number
    that is no square is rounded, and `exact` then says so.
    """
    try:
        text = expression.strip()
        value, exact = _ExpressionEvaluator(text, decimals).evaluate(
            ast.parse(text, mode="eval").body
        )
    except (SyntaxError, RecursionError, MemoryError):
        raise ValueError(f"{expression!r} is not an arithmetic expression") from None
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    return {"decimal": _format_decimal(value, decimals), "fraction": str(value), "exact": exact}


class _ExpressionEvaluator:
    """Evaluates one expression and records whether every step was exact."""

    def __init__(self, text: str, decimals: int) -> None:
        self._text = text
        self._decimals = decimals
        self._exact = True

    def evaluate(self, node: ast.expr) -> tuple[Fraction, bool]:
        return self._evaluate_node(node), self._exact

    def _evaluate_node(self, node: ast.expr) -> Fraction:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                # From the source text, because Python has already rounded a long decimal.
                written = ast.get_source_segment(self._text, node) or ""
                if isinstance(number, int):
                    return Fraction(number)
                return _parse_number(written)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._evaluate_node(operand)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self._evaluate_node(operand)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return _raise_to_power(self._evaluate_node(left), self._evaluate_node(right))
            case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
                return _check_size(
                    _OPERATORS[type(sign)](self._evaluate_node(left), self._evaluate_node(right))
                )
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call_function(
                    name, [self._evaluate_node(argument) for argument in args]
                )
            case _:
                raise ValueError(f"{ast.unparse(node)!r} is not part of arithmetic")

    def _call_function(self, name: str, values: list[Fraction]) -> Fraction:
        match name, values:
            case "abs", [value]:
                return abs(value)
            case "floor", [value]:
                return Fraction(math.floor(value))
            case "ceil", [value]:
                return Fraction(math.ceil(value))
            case "round", [value]:
                return Fraction(round(value))
            case "round", [value, digits] if digits.denominator == 1 and abs(digits) <= 100:
                return Fraction(round(value, int(digits)))
            case "min" | "max", [_, *_]:
                return (min if name == "min" else max)(values)
            case "sqrt", [value]:
                return self._compute_square_root(value)
            case _:
                raise ValueError(f"{name} with {len(values)} arguments is not known here")

    def _compute_square_root(self, value: Fraction) -> Fraction:
        if value < 0:
            raise ValueError("the square root of a negative number is not real")
        numerator_root = math.isqrt(value.numerator)
        denominator_root = math.isqrt(value.denominator)
        if numerator_root**2 == value.numerator and denominator_root**2 == value.denominator:
            return Fraction(numerator_root, denominator_root)
        self._exact = False
        scale = 10 ** (self._decimals + 15)
        return Fraction(math.isqrt(value.numerator * scale**2 // value.denominator), scale)


def _parse_number(text: str) -> Fraction:
    mantissa, _, exponent = text.replace(" ", "").lower().partition("e")
    try:
        # Checked first, because 1e999999999 would be computed digit by digit.
        if exponent and abs(int(exponent)) > MAX_EXPONENT:
            raise ValueError("the exponent is too large")
        return _check_size(Fraction(f"{mantissa}e{exponent}" if exponent else mantissa))
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number that can be used here") from None


def _raise_to_power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("only whole exponents are exact; use sqrt for square roots")
    bits = max(base.numerator.bit_length(), base.denominator.bit_length())
    if abs(exponent) * max(1, bits - 1) > MAX_BITS:
        raise ValueError("the result would be too long a number")
    return Fraction(base ** int(exponent))


def _check_size(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError("the numbers get too long")
    return value


def _format_decimal(value: Fraction, decimals: int) -> str:
    digits = max(1, len(str(abs(value.numerator) // value.denominator))) + decimals + 2
    with localcontext(Context(prec=digits, rounding=ROUND_HALF_EVEN)):
        shown = Decimal(value.numerator) / Decimal(value.denominator)
        text = format(shown.quantize(Decimal(1).scaleb(-decimals)), "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if text in ("-0", ""):
        return "0"
    return text


def to_fraction(
    number: Annotated[
        str,
        Field(max_length=100, description="A decimal such as 3.14159 or a fraction such as 6/8."),
    ],
    max_denominator: Annotated[
        int | None,
        Field(ge=1, le=10**9, description="The nearest fraction with at most this denominator."),
    ] = None,
) -> dict[str, Any]:
    """Turn a decimal number into a fraction in lowest terms, or into the nearest simple one."""
    exact = _parse_number(number)
    if max_denominator:
        simple = exact.limit_denominator(max_denominator)
    else:
        simple = exact
    whole, rest = divmod(abs(simple.numerator), simple.denominator)
    if whole and rest:
        mixed = f"{'-' if simple < 0 else ''}{whole} {rest}/{simple.denominator}"
    else:
        mixed = str(simple)
    return {"fraction": str(simple), "mixed": mixed, "error": _format_decimal(simple - exact, 15)}


def percent_change(
    before: Annotated[float, Field(description="The old value; not zero.")],
    after: Annotated[float, Field(description="The new value.")],
) -> dict[str, Any]:
    """Tell by how many percent a value rose or fell, and by which factor."""
    if before == 0:
        raise ValueError("there is no percentage of zero")
    old = Fraction(str(before))
    new = Fraction(str(after))
    change = (new - old) / abs(old) * 100
    direction = "unchanged"
    if change > 0:
        direction = "up"
    elif change < 0:
        direction = "down"
    return {
        "percent": _format_decimal(change, 6),
        "factor": _format_decimal(new / old, 6),
        "direction": direction,
    }


def summarize_numbers(
    numbers: Annotated[
        list[float], Field(min_length=1, max_length=10_000, description="The values.")
    ],
    sample: Annotated[
        bool, Field(description="Treat them as a sample (n−1) rather than the whole population.")
    ] = True,
) -> dict[str, Any]:
    """Describe a list of numbers: count, sum, mean, median, mode, quartiles, variance and standard
    deviation."""
    many = len(numbers) > 1
    if sample:
        spread = statistics.variance
    else:
        spread = statistics.pvariance
    if many:
        variance = spread(numbers)
        quartiles = statistics.quantiles(numbers, n=4, method="inclusive")
    else:
        variance = 0.0
        quartiles = [numbers[0]] * 3
    return {
        "count": len(numbers),
        "sum": math.fsum(numbers),
        "mean": statistics.fmean(numbers),
        "median": statistics.median(numbers),
        "modes": statistics.multimode(numbers)[:10],
        "min": min(numbers),
        "max": max(numbers),
        "quartiles": quartiles,
        "variance": variance,
        "standard_deviation": math.sqrt(variance),
    }


def compound_interest(
    principal: Annotated[float, Field(ge=0, description="What is there at the start.")],
    annual_rate_percent: Annotated[
        float, Field(gt=-100, le=1000, description="Nominal interest a year, in percent.")
    ],
    years: Annotated[float, Field(gt=0, le=200, description="For how long.")],
    compounds_per_year: Annotated[
        int, Field(ge=1, le=366, description="How often interest is added.")
    ] = 12,
    deposit: Annotated[float, Field(description="Paid in at the end of every period.")] = 0,
) -> dict[str, Any]:
    """Compute what savings grow to with compound interest and regular deposits."""
    periods = round(years * compounds_per_year)
    rate = annual_rate_percent / 100 / compounds_per_year
    growth = (1 + rate) ** periods
    deposits = deposit * (periods if rate == 0 else (growth - 1) / rate)
    final = principal * growth + deposits
    paid = principal + deposit * periods
    return {
        "final": round(final, 2),
        "paid_in": round(paid, 2),
        "interest": round(final - paid, 2),
        "periods": periods,
    }


def loan_payment(
    principal: Annotated[float, Field(gt=0, description="The amount borrowed.")],
    annual_rate_percent: Annotated[
        float, Field(ge=0, le=1000, description="Nominal interest a year, in percent.")
    ],
    months: Annotated[int, Field(ge=1, le=1200, description="Number of equal monthly payments.")],
) -> dict[str, Any]:
    """Compute the monthly payment of a loan or mortgage and what it costs in interest."""
    rate = annual_rate_percent / 1200
    if rate == 0:
        payment = principal / months
    else:
        payment = principal * rate / (1 - (1 + rate) ** -months)
    return {
        "monthly_payment": round(payment, 2),
        "total_paid": round(payment * months, 2),
        "total_interest": round(payment * months - principal, 2),
    }


def factorize(
    number: Annotated[int, Field(ge=1, le=10**12, description="A whole number.")],
) -> dict[str, Any]:
    """Split a whole number into prime factors; also tells whether it is prime."""
    factors: dict[str, int] = {}
    rest = number
    candidate = 2
    while candidate * candidate <= rest:
        while rest % candidate == 0:
            factors[str(candidate)] = factors.get(str(candidate), 0) + 1
            rest //= candidate
        candidate += 1 if candidate == 2 else 2
    if rest > 1:
        factors[str(rest)] = factors.get(str(rest), 0) + 1
    return {"factors": factors, "is_prime": list(factors.values()) == [1]}


def gcd_and_lcm(
    numbers: Annotated[
        list[Annotated[int, Field(ge=1, le=10**12)]],
        Field(min_length=2, max_length=100, description="Whole numbers."),
    ],
) -> dict[str, int]:
    """Find the greatest common divisor and the least common multiple of whole numbers."""
    return {"gcd": math.gcd(*numbers), "lcm": math.lcm(*numbers)}


def convert_base(
    number: Annotated[
        str, Field(max_length=300, description="The number, in `from_base`; 0x and _ are allowed.")
    ],
    from_base: Annotated[int, Field(ge=2, le=36, description="The base it is written in.")] = 10,
    to_base: Annotated[int, Field(ge=2, le=36, description="The base wanted.")] = 2,
) -> str:
    """Write a whole number in another base: binary, octal, decimal, hexadecimal, up to 36."""
    try:
        value = int(number.strip(), from_base)
    except ValueError:
        raise ValueError(f"{number!r} is not a whole number in base {from_base}") from None
    digits = ""
    rest = abs(value)
    while rest:
        rest, digit = divmod(rest, to_base)
        digits = DIGITS[digit] + digits
    return ("-" if value < 0 else "") + (digits or "0")


TOOLS = (
    make_read_only_tool("Evaluate an expression", evaluate),
    make_read_only_tool("Decimal to fraction", to_fraction),
    make_read_only_tool("Percent change", percent_change),
    make_read_only_tool("Statistics of numbers", summarize_numbers),
    make_read_only_tool("Compound interest", compound_interest),
    make_read_only_tool("Loan payment", loan_payment),
    make_read_only_tool("Prime factors", factorize),
    make_read_only_tool("Divisor and multiple", gcd_and_lcm),
    make_read_only_tool("Convert a number's base", convert_base),
)
