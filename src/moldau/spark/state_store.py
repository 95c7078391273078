"""Where Spark keeps state: in RocksDB. `transformWithState` knows no other store, and it does not have to fit into the
JVM's heap."""

from __future__ import annotations

from typing import Final

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
