"""The number that stands for a group's topics, against values computed with the library that Apache Kafka uses."""

from __future__ import annotations

from moldau.coordinator.group.modern.topic_hashes import TopicHashes
from moldau.coordinator.group.modern.xxh3 import xxh3_64
from moldau.metadata.image import BrokerRegistration, ClusterImage, PartitionRegistration, TopicImage

ORDERS_ID = bytes.fromhex("01020304050607081112131415161718")
# With hash4j: a zero byte, both halves of the id, the name, 3, and for each partition its number and racks "a", "bé".
ORDERS = 2754253114805844289


def broker(number: int, rack: str | None) -> BrokerRegistration:
    return BrokerRegistration(number, 1, bytes(16), {}, {}, rack, False, False, ())


def topic(name: str, topic_id: bytes, partitions: int, replicas: tuple[int, ...]) -> TopicImage:
    partition = PartitionRegistration(replicas, (), replicas, (), (), (), (), replicas[0], 0, 0, 0)
    return TopicImage(name, topic_id, dict.fromkeys(range(partitions), partition))


def image(*topics: TopicImage) -> ClusterImage:
    return ClusterImage(
        topics_by_name={each.name: each for each in topics},
        topics_by_id={each.id: each for each in topics},
        # Out of order, and one broker without a rack.
        brokers={1: broker(1, "bé"), 2: broker(2, "a"), 3: broker(3, None)},
    )


def signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number


def test_one_topic() -> None:
    orders = topic("orders", ORDERS_ID, 3, (1, 2, 3))
    expected = signed(xxh3_64(ORDERS.to_bytes(8, "little")))
    assert TopicHashes().of_group(["orders", "not there"], image(orders)) == expected


def test_numbers_of_topics_are_joined_in_the_order_of_their_names() -> None:
    joined = (-5).to_bytes(8, "little", signed=True) + (77).to_bytes(8, "little")
    assert signed(xxh3_64(joined)) == -6866509273373571706
    first, second = topic("a", b"a" * 16, 1, (1,)), topic("b", b"b" * 16, 1, (1,))
    both = image(first, second)
    assert TopicHashes().of_group(["b", "a"], both) == TopicHashes().of_group(["a", "b"], both)
    assert TopicHashes().of_group(["a"], both) != TopicHashes().of_group(["b"], both)


def test_no_topics() -> None:
    assert TopicHashes().of_group([], image()) == 0
    assert TopicHashes().of_group(["not there"], image()) == 0


def test_whatever_matters_changes_the_number() -> None:
    before = image(topic("orders", ORDERS_ID, 3, (1,)))
    for changed in (
        topic("orders", ORDERS_ID, 4, (1,)),
        topic("orders", b"?" * 16, 3, (1,)),
        topic("orders", ORDERS_ID, 3, (2,)),
    ):
        hashes = TopicHashes()
        number = hashes.of_group(["orders"], before)
        assert hashes.of_group(["orders"], image(changed)) == number, "it is remembered"
        hashes.forget("orders")
        assert hashes.of_group(["orders"], image(changed)) != number
