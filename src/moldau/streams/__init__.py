"""Stream processing on topics: streams, tables, windows and joins, computed by Spark.

    from moldau.spark.values import Json, String
    from moldau.streams import Streams, tumbling

    def pipeline(streams: Streams) -> None:
        clicks = streams.stream("clicks", value=Json("user string, page string, at timestamp"), event_time="at",
                                watermark="10 minutes")
        clicks.window(tumbling("1 minute")).group_by("page").count().to("clicks-per-minute")

A pipeline is a function of a `Streams`: `moldau run` gives it one, a test gives it one of `moldau.streams.testing`.

    entry                   Streams: topics to streams and tables
    stream, grouping        streams, their windows, groups and joins
    table                   tables, their joins and groups
    state_tables, state_streams, packing    what is kept by key where Spark has no operator of its own
    records, topics         keys and values as columns; where streams come from and results go
    testing                 a pipeline without brokers, with event time in the test's hands
"""

from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from moldau.streams.entry import Streams
from moldau.streams.stream import Stream
from moldau.streams.table import Table
from moldau.streams.windows import Window, hopping, session, sliding, tumbling

__all__ = [
    "StatefulProcessor",
    "StatefulProcessorHandle",
    "Stream",
    "Streams",
    "Table",
    "Window",
    "hopping",
    "session",
    "sliding",
    "tumbling",
]
