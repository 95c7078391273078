"""`format("moldau")`: the data source that Spark finds, and the schema of what it reads.

It turns options into readers and writers, and refuses what cannot work before a task is started. Spark creates one in
several processes for the same query, so creating one must have no effect anywhere.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from moldau.client.errors import MoldauError
from moldau.spark.options import includes_headers, source_options

HEADER_TYPE = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
SCHEMA_WITH_HEADERS = StructType([*SCHEMA.fields, StructField("headers", ArrayType(HEADER_TYPE))])


class MoldauDataSource(DataSource):
    """Topics of Moldau or Apache Kafka, with the options of Spark's `kafka` format."""

    @classmethod
    def name(cls) -> str:
        return "moldau"

    def schema(self) -> StructType:
        return SCHEMA_WITH_HEADERS if includes_headers(self.options) else SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        from moldau.spark.batch_reader import MoldauBatchReader

        self._check_schema(schema)
        return MoldauBatchReader(source_options(self.options, streaming=False), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from moldau.spark.stream_reader import MoldauStreamReader

        self._check_schema(schema)
        return MoldauStreamReader(source_options(self.options, streaming=True), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from moldau.spark.sink import MoldauBatchWriter, sink_options

        if overwrite:
            raise MoldauError('A topic cannot be overwritten: write with .mode("append")')
        return MoldauBatchWriter(sink_options(self.options, schema, streaming=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 - Spark's name
        from moldau.spark.sink import MoldauStreamWriter, sink_options

        # Complete mode asks to overwrite; as with Spark's own sink, every result is appended to the topic.
        return MoldauStreamWriter(sink_options(self.options, schema, streaming=True))

    def _check_schema(self, schema: StructType) -> None:
        expected = self.schema()
        if schema != expected:
            raise MoldauError(
                f"The columns of a topic are {expected.simpleString()}: they cannot be changed with .schema(...); "
                "select and cast columns instead"
            )


def register(spark: Any) -> None:
    """Make `format("moldau")` known to a session, where Spark does not find it by itself."""
    spark.dataSource.register(MoldauDataSource)
