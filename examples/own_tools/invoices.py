"""Your own tools: plain functions. The signature is the schema, the docstring the description."""

from typing import Annotated

from pydantic import Field

_PAID: dict[str, bool] = {"2026-001": True, "2026-002": False}


def invoice_total(
    net: Annotated[float, Field(ge=0, description="Amount before tax.")],
    tax_percent: Annotated[float, Field(ge=0, le=100, description="Tax rate in percent.")] = 19.0,
) -> dict[str, float]:
    """Work out what a customer has to pay, tax included."""
    tax = round(net * tax_percent / 100, 2)
    return {"net": net, "tax": tax, "total": round(net + tax, 2)}


def unpaid_invoices() -> list[str]:
    """List the numbers of invoices that have not been paid."""
    return [number for number, paid in _PAID.items() if not paid]
