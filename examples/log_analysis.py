"""Lines of a web server's log: requests and errors per minute, server errors as they happen, and what is no log line.

    python examples/feed.py log_analysis    (in one terminal; creates the topics, too)
    moldau run examples/log_analysis.py     (in another)

Reads `access-log` (text), writes `requests-per-minute`, `server-errors` and `unreadable-lines`.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from moldau.spark.values import String
from moldau.streams import Streams, tumbling

# host - user [time] "METHOD path PROTOCOL" status bytes
LINE = r'^(\S+) \S+ (\S+) \[([^\]]+)\] "(\S+) (\S+) [^"]*" (\d{3}) (\d+|-)$'
PARTS = ("host", "user", "time", "method", "path", "status")
TIME = "dd/MMM/yyyy:HH:mm:ss Z"


def pipeline(streams: Streams) -> None:
    lines = streams.stream("access-log", value=String())
    is_request = F.col("value").rlike(LINE)
    lines.where(~is_request).to("unreadable-lines")

    # Any DataFrame can go on as a stream; when a request was made is in its line.
    found = requests_in(lines.where(is_request).df)
    requests = streams.of(found, key="host", event_time="time", watermark="10 seconds")
    requests.where("status >= 500").to("server-errors")

    minutes = requests.window(tumbling("1 minute")).group_by("path")
    minutes.agg(requests=F.count("*"), errors=F.count_if(F.col("status") >= 400)).to("requests-per-minute")


def requests_in(lines):
    """The parts of each line as columns."""
    part = {name: F.regexp_extract("value", LINE, index) for index, name in enumerate(PARTS, start=1)}
    return lines.select(
        part["host"].alias("host"),
        F.to_timestamp(part["time"], TIME).alias("time"),
        part["method"].alias("method"),
        part["path"].alias("path"),
        part["status"].cast("int").alias("status"),
    )
