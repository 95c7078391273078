"""Orders with what is known about those who ordered, and what each city buys.

    python examples/feed.py orders_with_customers    (in one terminal; creates the topics, too)
    moldau run examples/orders_with_customers.py     (in another)

Reads the stream `orders` and the table `customers` (a compacted topic), writes `orders-with-customers` and the table
`revenue-by-city`.
"""

from moldau.spark.values import Json, String
from moldau.streams import Streams

ORDER = "customer string, item string, amount double"
CUSTOMER = "name string, city string"


def pipeline(streams: Streams) -> None:
    orders = streams.stream("orders", key=String(), key_name="order", value=Json(ORDER))
    customers = streams.table("customers", key=String(), value=Json(CUSTOMER))

    # Each order gets what the table says about its customer when it comes.
    known = orders.join(customers, on="customer", how="left", prefix="customer_")
    known.to("orders-with-customers")

    cities = known.where("customer_city is not null").group_by("customer_city")
    cities.aggregate({"orders": 0, "revenue": 0.0}, add, "orders long, revenue double").to("revenue-by-city")


def add(city: dict, order: dict) -> dict:
    return {"orders": city["orders"] + 1, "revenue": round(city["revenue"] + order["amount"], 2)}
