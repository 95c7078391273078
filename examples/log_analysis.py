"""Lines of a web server's log: requests and errors per minute, server errors as they happen, and what is no log line.

    moldau run examples/log_analysis.py
    python examples/feed.py log_analysis

Reads `access-log` (text), writes `requests-per-minute`, `server-errors` and `unreadable-lines`.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from moldau.spark.values import String
from moldau.streams import Stream, Streams, tumbling

# host - user [time] "METHOD path PROTOCOL" status bytes
LINE = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+|-)$'
PARTS = {"host": 1, "user": 2, "time": 3, "method": 4, "path": 5, "status": 6}


def pipeline(streams: Streams) -> None:
    lines = streams.stream("access-log", value=String(), watermark="10 seconds")

    requests = parsed(lines.where(F.col("value").rlike(LINE)))
    requests.where("status >= 500").key_by("host").to("server-errors")

    minutes = requests.window(tumbling("1 minute")).group_by("path")
    minutes.agg(
        requests=F.count("*"),
        errors=F.count_if(F.col("status") >= 400),
    ).to("requests-per-minute")

    lines.where(~F.col("value").rlike(LINE)).to("unreadable-lines")


def parsed(lines: Stream) -> Stream:
    """The parts of each line as columns."""
    parts = {name: F.regexp_extract("value", LINE, index) for name, index in PARTS.items()}
    parts["status"] = parts["status"].cast("int")
    return lines.with_columns(**parts).transform(lambda frame: frame.drop("value"))
