"""The keys of client-metrics subscriptions, of client quotas, and of the authorizer.

Facts only, in the order Kafka defines them; what each key means is in `docs`.
"""

from __future__ import annotations

from typing import Final

from moldau.config.rows import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    broker,
    client_metrics,
    quota,
)
from moldau.config.validators import Range, Words

CLIENT_METRICS_KEYS: Final = (
    client_metrics("metrics", LIST, (), Words(), "medium"),
    client_metrics("interval.ms", INT, 300_000, None, "medium"),
    client_metrics("match", LIST, (), Words(), "medium"),
)

# Quotas of users and client ids, alone or together.
USER_QUOTA_KEYS: Final = (
    quota("producer_byte_rate", LONG, LONG_MAX, None, "medium"),
    quota("consumer_byte_rate", LONG, LONG_MAX, None, "medium"),
    quota("request_percentage", DOUBLE, 2147483647.0, None, "medium"),
    quota("controller_mutation_rate", DOUBLE, 2147483647.0, None, "medium"),
)

# Quotas of the addresses clients connect from.
IP_QUOTA_KEYS: Final = (quota("connection_creation_rate", INT, INT_MAX, Range(0), "medium"),)

# Kafka's authorizer reads these straight from server.properties: they are in none of Kafka's own tables, and are
# therefore described as custom settings, but they are settings of the broker all the same.
AUTHORIZER_KEYS: Final = (
    broker("super.users", STRING, "", None, "high"),
    broker("allow.everyone.if.no.acl.found", BOOLEAN, False, None, "high"),
)
