"""What people do on a website: their sessions, and which pages are looked at.

    python examples/feed.py website_activity    (in one terminal; creates the topics, too)
    moldau run examples/website_activity.py     (in another)

Reads `page-views`, writes `sessions` (one record when a session is over) and `page-views-per-minute`.
"""

from pyspark.sql import functions as F  # noqa: N812 - as everybody writes it

from moldau.spark.values import Json, String
from moldau.streams import Streams, session, tumbling

VIEW = "user string, page string, at timestamp"


def pipeline(streams: Streams) -> None:
    views = streams.stream("page-views", key=String(), value=Json(VIEW), event_time="at", watermark="2 minutes")

    # A session ends when its user does nothing for half an hour.
    visits = views.window(session("30 minutes")).group_by("user")
    visits.agg(
        views=F.count("*"),
        pages=F.size(F.collect_set("page")),
        entry=F.min_by("page", "at"),
        exit=F.max_by("page", "at"),
    ).to("sessions")

    views.window(tumbling("1 minute")).group_by("page").count().to("page-views-per-minute")
