"""Find a tool by what it does, read how it is called, call it. No model, no key.

python examples/agent/search_and_call.py                               # a small shop's functions
python examples/agent/search_and_call.py portico.yaml "open an issue"  # your own configuration
"""
# ruff: noqa: T201

import asyncio
import sys

from shop import SHOP

from portico import Gateway, InvalidArguments, UnknownName


async def look(gateway: Gateway, query: str) -> None:
    """Print what the gateway finds, and how the best match is called."""
    found = await gateway.search(query)
    print(f"{len(found)} tools for {query!r}, fit: {found.fit}")
    for match in found[:3]:
        print(f"  {match.score:.2f}  {match.name}: {match.summary}")
    if found:
        print(await gateway.describe(found[0].name))


async def main() -> None:
    """Use the shop's tools, or those of a configuration."""
    if len(sys.argv) > 2:
        async with Gateway(sys.argv[1]) as gateway:
            await look(gateway, sys.argv[2])
        return
    async with Gateway(servers=SHOP, in_memory=True) as gateway:
        await look(gateway, "which orders have not been sent")
        result = await gateway.call("shop.unsent_orders")
        print("text:", result.text, "structured:", result.structured)
        script = (
            "orders = await shop.unsent_orders()\n"
            "[await shop.find_order(number=n) for n in orders['result']]"
        )
        print("script:", (await gateway.run_code(script)).text)
        failed = await gateway.call("shop.find_order", {"number": 7})
        print("the tool's own error:", failed.is_error, failed.text)
        try:
            await gateway.call("shop.find_order", {"number": "many"})
        except InvalidArguments as error:
            print("refused:", error.message)
        try:
            await gateway.call("shop.find_oder")
        except UnknownName as error:
            print("nearest:", error.nearest)


if __name__ == "__main__":
    asyncio.run(main())
