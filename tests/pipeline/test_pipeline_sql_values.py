"""SQL programs over Avro and Protobuf: with schemas of their own, in text and in files, and with a schema registry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from moldau.pipeline.errors import PipelineError
from moldau.pipeline.sql_query import QuerySettings, plan_query
from moldau.spark.values import Avro, Json, Protobuf, Registry, String, decode, encode
from moldau.spark.values.registry import forget_schemas
from tests.pipeline.world import Stage, consume
from tests.spark.values_registry import RegistryServer, registry_server

pytestmark = pytest.mark.timeout(300)

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "item", "type": "string"},
        {"name": "paid", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
TOTAL = {
    "type": "record",
    "name": "Total",
    "fields": [{"name": "item", "type": "string"}, {"name": "orders", "type": "long"}],
}
ITEM = 'syntax = "proto3"; package shop; message Item { string name = 1; optional double price = 2; }'
PRICED = """\
syntax = "proto3";
import "item.proto";
message Priced {
  int64 id = 1;
  shop.Item item = 2;
}
"""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[RegistryServer]:
    """A registry that lets one user in."""
    forget_schemas()
    with registry_server() as found:
        found.credentials = ("app", "secret")
        monkeypatch.setenv("REGISTRY_PASSWORD", "secret")
        yield found


def write(stage: Stage, topic: str, rows: str, form: Any) -> None:
    """Rows of an SQL query as records: its columns `key` and `value`."""
    records = encode(stage.spark.sql(rows), key=String(), value=form)
    records.write.format("moldau").options(**stage.options, topic=topic).mode("append").save()


def read(stage: Stage, topic: str, form: Any) -> list[tuple[str | None, Any]]:
    """All records of a topic as (key, value), values as dictionaries."""
    records = stage.spark.read.format("moldau").options(**stage.options, subscribe=topic).load()
    found = decode(records, key=String(), value=form, mode="fail").orderBy("partition", "offset").collect()
    return [(each.key, None if each.value is None else each.value.asDict(recursive=True)) for each in found]


ORDERS = """
SELECT k AS key, named_struct('id', id, 'item', item, 'paid', timestamp(paid)) AS value
FROM VALUES ('o1', 1L, 'tea', '2026-01-01 10:00:10'), ('o2', 2L, 'cup', '2026-01-01 10:00:40'),
            ('o3', 3L, 'tea', '2026-01-01 10:01:10'), ('o4', 4L, 'end', '2026-01-01 12:00:00') AS t(k, id, item, paid)
"""
ITEMS = """
SELECT name AS key, named_struct('name', name, 'price', price) AS value
FROM VALUES ('tea', 4.5D), ('cup', 12.0D) AS t(name, price)
"""

OWN_SCHEMAS = """
CREATE STREAM orders
  WITH (topic = '{orders}', format = 'avro', schema = 'order.avsc', timestamp = 'paid', watermark = '1 minute');
CREATE TABLE items WITH (topic = '{items}', format = 'protobuf', schema = '{item}', message = 'shop.Item');

INSERT INTO TOPIC '{priced}' WITH (key = 'id', format = 'protobuf', schema = 'priced.proto')
SELECT id, struct(items.name, items.price) AS item FROM orders JOIN items ON orders.item = items._key;

INSERT INTO TOPIC '{minutes}' WITH (key = 'item', format = 'avro', schema = '{total}')
SELECT item, count(*) AS orders FROM orders GROUP BY window(paid, '1 minute'), item;

INSERT INTO TOPIC '{dead}' WITH (format = 'raw')
SELECT _raw.key AS key, _raw.value AS value FROM orders WHERE _error IS NOT NULL;
"""


@pytest.mark.long
def test_avro_and_protobuf_with_schemas_of_ones_own(stage: Stage, new_topic: Callable[..., str]) -> None:
    topics = {name: new_topic(1) for name in ("orders", "items", "priced", "minutes", "dead")}
    (stage.directory / "order.avsc").write_text(json.dumps(ORDER, indent=2))
    (stage.directory / "item.proto").write_text(ITEM)
    (stage.directory / "priced.proto").write_text(PRICED)
    write(stage, topics["orders"], ORDERS, Avro(ORDER))
    write(stage, topics["orders"], "SELECT 'bad' AS key, 'no Avro at all' AS value", String())
    write(stage, topics["items"], ITEMS, Protobuf(ITEM))
    outcome = stage.run(
        stage.program(OWN_SCHEMAS.format(**topics, item=ITEM, total=json.dumps(TOTAL)), "app.sql"),
        name=topics["orders"],
    )
    assert outcome.code == 0, outcome.words
    assert sorted(read(stage, topics["priced"], Protobuf({"item.proto": ITEM, "priced.proto": PRICED}))) == [
        ("1", {"id": 1, "item": {"name": "tea", "price": 4.5}}),
        ("2", {"id": 2, "item": {"name": "cup", "price": 12.0}}),
        ("3", {"id": 3, "item": {"name": "tea", "price": 4.5}}),
    ]
    assert sorted(read(stage, topics["minutes"], Avro(TOTAL)), key=str) == [
        ("cup", {"item": "cup", "orders": 1}),
        ("tea", {"item": "tea", "orders": 1}),
        ("tea", {"item": "tea", "orders": 1}),
    ]
    assert consume(stage.bootstrap, topics["dead"]) == [("bad", "no Avro at all")]


WITH_A_REGISTRY = """
CREATE STREAM orders WITH (
  topic = '{orders}', format = 'avro',
  registry = '{url}', registry.user = 'app', registry.password = '${{env:REGISTRY_PASSWORD}}'
);
CREATE TABLE items WITH (
  topic = '{items}', format = 'protobuf',
  registry = '{url}', subject = 'all-items', registry.user = 'app', registry.password = 'secret'
);

-- The subject is new: its schema is made of the columns.
INSERT INTO TOPIC '{priced}' WITH (
  key = 'id', format = 'avro', registry = '{url}', registry.user = 'app', registry.password = 'secret'
)
SELECT id, price FROM orders JOIN items ON orders.item = items._key;

-- The subject is there, and its newest version is written.
INSERT INTO TOPIC '{totals}' WITH (
  key = 'item', mode = 'update', format = 'avro',
  registry = '{url}', registry.user = 'app', registry.password = 'secret'
)
SELECT item, count(*) AS orders FROM orders GROUP BY item;

INSERT INTO TOPIC '{named}' WITH (
  key = 'id', format = 'json', registry = '{url}', registry.user = 'app', registry.password = 'secret'
)
SELECT id, item FROM orders WHERE id < 3;
"""


@pytest.mark.long
def test_values_with_a_registry(stage: Stage, new_topic: Callable[..., str], registry: RegistryServer) -> None:
    topics = {name: new_topic(1) for name in ("orders", "items", "priced", "totals", "named")}
    known = Registry(registry.url, user="app", password="secret")
    write(stage, topics["orders"], ORDERS, Avro(ORDER, registry=known, subject=f"{topics['orders']}-value"))
    write(stage, topics["items"], ITEMS, Protobuf(ITEM, registry=known, subject="all-items"))
    registry.add(f"{topics['totals']}-value", json.dumps(TOTAL))
    outcome = stage.run(
        stage.program(WITH_A_REGISTRY.format(**topics, url=registry.url), "app.sql"), name=topics["orders"]
    )
    assert outcome.code == 0, outcome.words
    of_subject = {name: {"registry": known, "subject": f"{topic}-value"} for name, topic in topics.items()}
    assert sorted(read(stage, topics["priced"], Avro(**of_subject["priced"]))) == [
        ("1", {"id": 1, "price": 4.5}),
        ("2", {"id": 2, "price": 12.0}),
        ("3", {"id": 3, "price": 4.5}),
    ]
    assert dict(read(stage, topics["totals"], Avro(**of_subject["totals"]))) == {
        "tea": {"item": "tea", "orders": 2},
        "cup": {"item": "cup", "orders": 1},
        "end": {"item": "end", "orders": 1},
    }
    assert len(registry.subjects[f"{topics['totals']}-value"]) == 1
    assert read(stage, topics["named"], Json(**of_subject["named"])) == [
        ("1", {"id": 1, "item": "tea"}),
        ("2", {"id": 2, "item": "cup"}),
    ]
    # Columns of JSON come from the registry, too.
    more = new_topic(1)
    settings = f"registry = '{registry.url}', registry.user = 'app', registry.password = 'secret'"
    program = stage.program(
        f"""
        CREATE STREAM named WITH (topic = '{topics["named"]}', format = 'json', {settings});
        INSERT INTO TOPIC '{more}' WITH (key = 'id') SELECT id, upper(item) AS item FROM named;
        """,
        "more.sql",
    )
    outcome = stage.run(program, name=more)
    assert outcome.code == 0, outcome.words
    assert consume(stage.bootstrap, more) == [("1", {"id": 1, "item": "TEA"}), ("2", {"id": 2, "item": "CUP"})]


@pytest.mark.long
def test_one_question(
    stage: Stage, new_topic: Callable[..., str], registry: RegistryServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders, items = new_topic(1), new_topic(1)
    known = Registry(registry.url, user="app", password="secret")
    write(stage, orders, ORDERS, Avro(ORDER))
    write(stage, items, ITEMS, Protobuf(ITEM, registry=known, subject=f"{items}-value"))
    (stage.directory / "order.avsc").write_text(json.dumps(ORDER))
    monkeypatch.chdir(stage.directory)

    def ask(query: str, form: str, **values: str) -> list[Any]:
        settings = QuerySettings(stage.options, form, values=values)
        return [tuple(row) for row in plan_query(stage.spark, query, settings).collect()]

    found = ask(f"SELECT key, value.item FROM `{orders}` WHERE value.id > 2 ORDER BY key", "avro", schema="order.avsc")
    assert found == [("o3", "tea"), ("o4", "end")]
    place = {"registry": registry.url, "registry.user": "app", "registry.password": "secret"}
    assert ask(f"SELECT sum(value.price) FROM `{items}`", "protobuf", **place) == [(16.5,)]
    for values, complaint in (({}, "format 'avro' needs a schema"), ({"shema": "x"}, "there is no option 'shema'")):
        stage.spark.catalog.dropTempView(orders)
        with pytest.raises(PipelineError, match=complaint):
            ask(f"SELECT * FROM `{orders}`", "avro", **values)


@pytest.mark.parametrize(
    ("options", "select", "complaint"),
    [
        ("format = 'avro'", "id", "line 1: format 'avro' needs a schema"),
        ("format = 'avro', schema = 'none.avsc'", "id", "line 1: schema = 'none.avsc' is no schema, and there is no"),
        ("format = 'avro', schema = '{}'", "id", "line 1: "),
        ("format = 'protobuf', schema = 'message A {'", "id", "line 1: "),
        ("format = 'avro', registry = 'localhost:8081'", "id", "line 1: A registry's address is http://host:port"),
        ("format = 'avro', registry = '{url}'", "id", "line 1: "),
        (
            "format = 'avro', registry = '{url}', registry.user = 'app', registry.password = 'secret'",
            "id",
            "line 1: The registry at {url} has no subject 't-value'",
        ),
        ("format = 'avro', schema = '{order}'", "nothing", "line 2: A column, variable, or function parameter"),
        ("format = 'avro', schema = '{order}'", "id, 1 AS more", "line 2: "),
    ],
)
def test_mistakes(stage: Stage, registry: RegistryServer, options: str, select: str, complaint: str) -> None:
    filled = options.replace("{order}", json.dumps(ORDER)).replace("{url}", registry.url)
    text = f"""CREATE STREAM s WITH (topic = 't', {filled});
    INSERT INTO TOPIC 'o' WITH (format = 'avro', schema = '{json.dumps(ORDER)}') SELECT {select} FROM s"""
    outcome = stage.run(stage.program(text, "app.sql"))
    assert outcome.code == 1
    assert complaint.replace("{url}", registry.url) in outcome.words
    assert "secret" not in outcome.words
