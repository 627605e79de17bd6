"""What a model writes when tools are functions: 200 orders come here, and three lines go to it."""
import asyncio

from servers import ToolError
from servers.shop import list_orders, refund

orders = list_orders()["orders"]
late = [order for order in orders if order["days_late"] > 20]
print(f"{len(late)} of {len(orders)} orders are very late")


async def give_back(order):
    try:
        return await refund.aio(order=order["id"], amount=order["amount"])
    except ToolError as e:
        return f"order {order['id']}: {e}"


async def main():
    for line in await asyncio.gather(*map(give_back, late)):
        print(line)

asyncio.run(main())
