"""Input for the examples: creates their topics and writes made-up records until Ctrl-C.

    python examples/feed.py website_activity --rate 50
    python examples/feed.py orders_with_customers --bootstrap-server localhost:9092 --records 1000

The same seed makes the same records. Where an example is about time, the clock of its records runs faster than ours
(--speed), so that windows of minutes are over in seconds.
"""

# ruff: noqa: T201
from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

START = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
CITIES = ("Brno", "Lagos", "Lima", "Oslo", "Pune")
NAMES = ("Ada", "Ben", "Chidi", "Dana", "Emil", "Fatou", "Goran", "Hana", "Ivo", "Jana")
ITEMS = ("bread", "butter", "coffee", "filter", "flour", "jam", "milk", "sugar", "tea", "yeast")
# Items that people like to buy together.
SETS = (("bread", "butter", "jam"), ("coffee", "filter", "milk"), ("flour", "yeast", "sugar"), ("tea", "milk"))
PAGES = ("/", "/products", "/products/tea", "/products/coffee", "/cart", "/checkout", "/help")


@dataclass(frozen=True)
class Sent:
    """A record to send. When something happened is in its value, by a clock of the feed's own."""

    topic: str
    key: str | None
    value: dict | str


# How far the clock is: seconds since 1970, told to a generator whenever it makes a record.
Clock = Callable[[], float]


def website_activity(chance: random.Random, clock: Clock) -> Iterator[Sent]:
    """People who come, look at some pages and go away again for a while."""
    away_until = dict.fromkeys(NAMES, 0.0)
    while True:
        now = clock()
        here = [name for name in NAMES if away_until[name] <= now]
        if not here:
            away_until[min(NAMES, key=away_until.__getitem__)] = now
            continue
        user = chance.choice(here)
        page = chance.choice(PAGES)
        yield Sent("page-views", user, {"user": user, "page": page, "at": _iso(now)})
        if page == "/checkout" or chance.random() < 0.1:
            away_until[user] = now + chance.uniform(40 * 60, 120 * 60)


def metrics_alerting(chance: random.Random, clock: Clock) -> Iterator[Sent]:
    """Machines that are measured in turn; each has hard times now and then."""
    hosts = [f"web-{number}" for number in range(1, 5)]
    hard_until: dict[tuple[str, str], float] = {}
    while True:
        for host in hosts:
            for metric, usual in (("cpu", 40.0), ("memory", 60.0), ("disk", 50.0)):
                now = clock()
                if chance.random() < 0.005:
                    hard_until[host, metric] = now + 180
                level = 96.0 if hard_until.get((host, metric), 0.0) > now else usual
                value = round(min(100.0, max(0.0, chance.gauss(level, 3))), 1)
                yield Sent("measurements", host, {"host": host, "metric": metric, "value": value, "at": _iso(now)})


def log_analysis(chance: random.Random, clock: Clock) -> Iterator[Sent]:
    """Lines as a web server writes them, and a few that something else wrote."""
    while True:
        now = clock()
        if chance.random() < 0.02:
            yield Sent("access-log", None, "-- log rotated --")
            continue
        host = f"10.0.0.{chance.randint(1, 9)}"
        status = chance.choices((200, 304, 404, 500), (85, 6, 6, 3))[0]
        when = datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        line = f'{host} - - [{when}] "GET {chance.choice(PAGES)} HTTP/1.1" {status} {chance.randint(200, 9000)}'
        yield Sent("access-log", None, line)


def orders_with_customers(chance: random.Random, _: Clock) -> Iterator[Sent]:
    """First all customers, then orders; from time to time somebody moves to another city."""
    customers = [f"c{number}" for number in range(1, len(NAMES) + 1)]
    for customer, name in zip(customers, NAMES, strict=True):
        yield Sent("customers", customer, {"name": name, "city": chance.choice(CITIES)})
    number = 0
    while True:
        number += 1
        amount = round(chance.uniform(2, 80), 2)
        order = {"customer": chance.choice(customers), "item": chance.choice(ITEMS), "amount": amount}
        yield Sent("orders", f"o{number}", order)
        if number % 50 == 0:
            index = chance.randrange(len(customers))
            yield Sent("customers", customers[index], {"name": NAMES[index], "city": chance.choice(CITIES)})


def recommendations(chance: random.Random, _: Clock) -> Iterator[Sent]:
    """Baskets with something from one set, and something that has nothing to do with it."""
    number = 0
    while True:
        number += 1
        wanted = chance.choice(SETS)
        items = [*chance.sample(wanted, chance.randint(1, len(wanted))), *chance.sample(ITEMS, chance.randint(0, 1))]
        yield Sent("baskets", f"b{number}", {"customer": chance.choice(NAMES), "items": items})


EXAMPLES: dict[str, Callable[[random.Random, Clock], Iterator[Sent]]] = {
    each.__name__: each
    for each in (website_activity, metrics_alerting, log_analysis, orders_with_customers, recommendations)
}
# Topics of each example, those that it reads and those that it writes; tables are compacted.
TOPICS = {
    "website_activity": ("page-views", "sessions", "page-views-per-minute"),
    "metrics_alerting": ("measurements", "averages-per-minute", "alerts"),
    "log_analysis": ("access-log", "requests-per-minute", "server-errors", "unreadable-lines"),
    "orders_with_customers": ("orders", "customers", "orders-with-customers", "revenue-by-city"),
    "recommendations": ("baskets", "recommendations"),
}
TABLES = frozenset({"customers", "revenue-by-city", "recommendations"})
SPEEDS = {"website_activity": 120.0, "metrics_alerting": 20.0, "log_analysis": 20.0}


def create_topics(example: str, bootstrap: str, partitions: int = 2) -> None:
    """Create the topics of an example; those that are there stay as they are."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [
        NewTopic(name, partitions, config={"cleanup.policy": "compact"} if name in TABLES else {})
        for name in TOPICS[example]
    ]
    for created in admin.create_topics(wanted).values():
        try:
            created.result(30)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise


def feed(
    example: str,
    bootstrap: str,
    *,
    records: int | None = None,
    rate: float = 50.0,
    speed: float | None = None,
    seed: int = 1,
    until: Callable[[], bool] = lambda: False,
) -> int:
    """Write records, so many a second, until there are enough or `until` says so; how many."""
    producer = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2_random", "linger.ms": 20})
    begun = time.monotonic()
    faster = speed or SPEEDS.get(example, 1.0)
    sent = [0]
    # The clock follows the records, not the machine: the same records come out however slow it is.
    for each in EXAMPLES[example](random.Random(seed), lambda: START + sent[0] / rate * faster):
        if sent[0] == records or until():
            break
        value = json.dumps(each.value) if isinstance(each.value, dict) else each.value
        producer.produce(each.topic, key=each.key, value=value)
        producer.poll(0)
        sent[0] += 1
        ahead = sent[0] / rate - (time.monotonic() - begun)
        if records is None and ahead > 0:
            time.sleep(min(ahead, 0.5))
    producer.flush(60)
    return sent[0]


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def main() -> None:
    parser = argparse.ArgumentParser(description="Input for the examples.")
    parser.add_argument("example", choices=EXAMPLES)
    parser.add_argument("--bootstrap-server", default=os.environ.get("MOLDAU_BOOTSTRAP") or "localhost:9092")
    parser.add_argument("--records", type=int, help="how many, as fast as possible; endless unless given")
    parser.add_argument("--rate", type=float, default=50.0, help="records a second (default: 50)")
    parser.add_argument("--speed", type=float, help="how much faster than ours the records' clock runs")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    create_topics(given.example, given.bootstrap_server)
    print(f"Feeding {', '.join(TOPICS[given.example])} on {given.bootstrap_server}; Ctrl-C ends.")
    try:
        count = feed(
            given.example,
            given.bootstrap_server,
            records=given.records,
            rate=given.rate,
            speed=given.speed,
            seed=given.seed,
        )
        print(f"{count} records.")
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    main()
