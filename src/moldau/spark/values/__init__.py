"""What the bytes in topics mean: JSON, Avro, Protobuf, strings and numbers, as columns of DataFrames.

    decode(df, value=..., key=...)      bytes to values; bad records get an `_error`, or stop the query
    encode(df, value=..., key=...)      values to bytes, ready to be written
    dead_letters(df, topic=...)         good records, and bad ones ready for a dead-letter topic
    Json, Avro, Protobuf, String, Number, Bytes, Registry

Inside: `formats` and `frames` make expressions for Spark; `worker` and `batches` run in Spark's Python workers; Avro
is read and written by compiled loops (`avro_*`), Protobuf by Google's library (`protobuf_*`); `framing` and `registry`
know schema registries.
"""

from __future__ import annotations

from moldau.spark.values.errors import RegistryError
from moldau.spark.values.formats import Avro, Bytes, Format, Json, Number, Protobuf, String
from moldau.spark.values.frames import dead_letters, decode, encode
from moldau.spark.values.registry import Registry

__all__ = [
    "Avro",
    "Bytes",
    "Format",
    "Json",
    "Number",
    "Protobuf",
    "Registry",
    "RegistryError",
    "String",
    "dead_letters",
    "decode",
    "encode",
]
