"""Topics as Spark DataFrames: `spark.read.format("moldau")` and its siblings for streams and for writing.

The room talks to any broker that speaks Kafka's protocol, over the wire only; it knows nothing of the broker's inside.
It needs the extra `moldau[spark]`. Spark finds the format through the module `pyspark_moldau`.

    kernels, columns        records to Arrow and back, compiled
    brokers                 how tasks reach brokers: the client's settings and connections
    fetching, planning      reading ranges of offsets; which ranges
    batch_reader, stream_reader, pushdown
    encoding, producing     rows to record batches to brokers
    exactly_once, sink      one commit for each micro-batch
    source                  what Spark sees
"""
