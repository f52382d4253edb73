"""Tools for the examples: plain functions of a small shop, instead of servers in a portico.yaml."""

from typing import Annotated, Any

from pydantic import Field

_ORDERS: dict[int, dict[str, Any]] = {
    1001: {"customer": "Ada", "total": 30.0, "sent": True},
    1002: {"customer": "Grace", "total": 99.5, "sent": False},
}


def find_order(number: Annotated[int, Field(description="The order's number.")]) -> dict[str, Any]:
    """Look up an order: who made it, what it costs, whether it was sent."""
    return _ORDERS[number]


def unsent_orders() -> list[int]:
    """List the numbers of orders that have not been sent yet."""
    return [number for number, order in _ORDERS.items() if not order["sent"]]


def shipping_cost(weight_kg: float, country: str = "DE") -> float:
    """Work out what it costs to send a parcel."""
    return round((5.0 if country == "DE" else 12.0) + 1.5 * weight_kg, 2)


SHOP = {"shop": [find_order, unsent_orders, shipping_cost]}
