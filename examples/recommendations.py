"""Who bought this also bought that: what is found together in baskets, counted for every item.

    python examples/feed.py recommendations    (in one terminal; creates the topics, too)
    moldau run examples/recommendations.py     (in another)

Reads `baskets`, writes the table `recommendations`: for every item, how often others were bought with it, and the
three that were bought most.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from moldau.spark.values import Json, String
from moldau.streams import Streams

BASKET = "customer string, items array<string>"
SHOWN = 3


def pipeline(streams: Streams) -> None:
    baskets = streams.stream("baskets", key=String(), key_name="basket", value=Json(BASKET))
    pairs = baskets.transform(pairs_of_items)
    together = pairs.group_by("item").aggregate(
        {"recommended": [], "counts": {}}, add, "recommended array<string>, counts map<string, long>"
    )
    together.to("recommendations")


def pairs_of_items(frame):
    """A row for every two different items of a basket, both ways round."""
    distinct = frame.withColumn("items", F.array_distinct("items"))
    one = distinct.withColumn("item", F.explode("items"))
    return one.withColumn("other", F.explode("items")).where("item <> other").drop("items", "customer")


def add(seen: dict, pair: dict) -> dict:
    counts = {**seen["counts"], pair["other"]: seen["counts"].get(pair["other"], 0) + 1}
    ranked = sorted(counts, key=lambda item: (-counts[item], item))
    return {"recommended": ranked[:SHOWN], "counts": counts}
