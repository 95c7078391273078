"""The first records of a controller that just became active."""

from __future__ import annotations

from collections.abc import Sequence

from moldau.config.node_config import NodeConfig
from moldau.controller.configs import MIN_ISR
from moldau.metadata.features import ELR_VERSION, METADATA_VERSION, TRANSACTIONS_SINCE
from moldau.metadata.image import BROKER_RESOURCE, ClusterImage
from moldau.metadata.records import MetadataRecord
from moldau.protocol.generated.metadata.abort_transaction_record import AbortTransactionRecord
from moldau.protocol.generated.metadata.begin_transaction_record import BeginTransactionRecord
from moldau.protocol.generated.metadata.config_record import ConfigRecord
from moldau.protocol.generated.metadata.end_transaction_record import EndTransactionRecord
from moldau.protocol.generated.metadata.feature_level_record import FeatureLevelRecord


def activation_records(
    image: ClusterImage, *, transaction_open: bool, bootstrap: Sequence[MetadataRecord], config: NodeConfig
) -> list[MetadataRecord]:
    """An empty log gets the cluster's first records; a transaction that an earlier controller left is aborted."""
    records: list[MetadataRecord] = []
    if transaction_open:
        records.append(AbortTransactionRecord(reason="Controller failover"))
    if image.metadata_version:
        return records
    levels = {r.name: r.feature_level for r in bootstrap if isinstance(r, FeatureLevelRecord)}
    first: list[MetadataRecord] = [*bootstrap]
    if levels.get(ELR_VERSION, 0) > 0:
        # All brokers must agree on the minimum for eligible leaders to be safe: it is pinned from the beginning.
        value = str(config.integer(MIN_ISR))
        first.append(ConfigRecord(resource_type=BROKER_RESOURCE, resource_name="", name=MIN_ISR, value=value))
    if levels.get(METADATA_VERSION, 0) >= TRANSACTIONS_SINCE:
        return [*records, BeginTransactionRecord(name="Bootstrap records"), *first, EndTransactionRecord()]
    return [*records, *first]
