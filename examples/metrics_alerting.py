"""Measurements of machines: averages per minute, and an alert when one stays too high.

    python examples/feed.py metrics_alerting    (in one terminal; creates the topics, too)
    moldau run examples/metrics_alerting.py     (in another)

Reads `measurements`, writes `averages-per-minute` and `alerts`.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from moldau.spark.values import Json, String
from moldau.streams import Streams, hopping, tumbling

MEASUREMENT = "host string, metric string, value double, at timestamp"
LIMITS = {"cpu": 90.0, "memory": 95.0, "disk": 85.0}


def pipeline(streams: Streams) -> None:
    measured = streams.stream(
        "measurements", key=String(), value=Json(MEASUREMENT), event_time="at", watermark="10 seconds"
    )

    minutes = measured.window(tumbling("1 minute")).group_by("host", "metric")
    minutes.agg(average=F.avg("value"), highest=F.max("value")).to("averages-per-minute")

    # Too high on average over a whole minute, looked at every 20 seconds: a single peak is no reason to wake anybody.
    limit = F.create_map(*[F.lit(each) for pair in LIMITS.items() for each in pair])
    recent = measured.window(hopping("1 minute", every="20 seconds")).group_by("host", "metric")
    averages = recent.agg(average=F.avg("value"), measurements=F.count("*"))
    averages.with_columns(limit=limit[F.col("metric")]).where("average > limit and measurements >= 3").to("alerts")
