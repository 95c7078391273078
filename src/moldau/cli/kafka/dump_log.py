"""`kafka-dump-log`: show and check the files of a log directory, without a broker."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from moldau.cli.errors import CliError
from moldau.cli.kafka._options import OptionParser, Options, integer, run

if TYPE_CHECKING:
    from moldau.cli.kafka._dump_log import Decoder, DumpSettings
    from moldau.records.record import Record

STRING_DECODER = "org.apache.kafka.tools.api.StringDecoder"
INTERNAL_DECODERS = {
    "offsets-decoder": "group",
    "transaction-log-decoder": "transaction",
    "share-group-state-decoder": "share",
}
DECODER_OPTIONS = (
    *INTERNAL_DECODERS,
    "cluster-metadata-decoder",
    "remote-log-metadata-decoder",
    "value-decoder-class",
    "key-decoder-class",
)
MAX_MESSAGE_SIZE = 5 * 1024 * 1024


def main(argv: Sequence[str] | None = None) -> int:
    return run(lambda: execute(argv))


def execute(argv: Sequence[str] | None) -> int:
    options = _parser().parse(argv)
    options.require("files")
    from moldau.cli.kafka import _dump_indexes as indexes
    from moldau.cli.kafka._dump_log import Findings, dump_log, print_findings

    settings = _settings(options)
    sanity_only = options.has("index-sanity-check")
    verify_only = options.has("verify-index-only")
    findings = Findings()
    for path in options.text("files").split(","):
        print(f"Dumping {path}")
        suffix = os.path.splitext(path)[1]
        if suffix in (".log", ".checkpoint"):
            dump_log(path, settings, findings)
        elif suffix == ".index":
            indexes.dump_index(
                path,
                findings,
                sanity_only=sanity_only,
                verify_only=verify_only,
                max_message_size=options.value("max-message-size"),
            )
        elif suffix == ".timeindex":
            indexes.dump_time_index(path, findings, sanity_only=sanity_only, verify_only=verify_only)
        elif suffix == ".snapshot":
            indexes.dump_producer_snapshot(path)
        elif suffix == ".txnindex":
            indexes.dump_transaction_index(path)
        else:
            print(f"Ignoring unknown file {path}", file=sys.stderr)
    sys.stdout.flush()
    print_findings(findings)
    return 0


def _parser() -> OptionParser:
    parser = OptionParser("kafka-dump-log", "Show and check segments, indexes and snapshots of a log directory.")
    parser.value("files", "FILE,…", "Required. The files to show.")
    parser.flag("print-data-log", "Show keys and values of records. Implied by any decoder.")
    parser.flag("deep-iteration", "Show records, not only batches. Implied by --print-data-log.")
    parser.flag("verify-index-only", "Check indexes against their segments without printing entries.")
    parser.flag("index-sanity-check", "Only do the check a broker does at start.")
    parser.flag("skip-record-metadata", "Leave out offsets, timestamps and sizes of records, and control records.")
    parser.value("max-message-size", "BYTES", "Size of the largest batch.", convert=integer, default=MAX_MESSAGE_SIZE)
    parser.value("max-bytes", "BYTES", "Read no more than this of a segment.", convert=integer, default=2**31 - 1)
    for kind in ("key", "value"):
        parser.value(
            f"{kind}-decoder-class",
            "CLASS",
            f"How to show {kind}s: Kafka's StringDecoder, IntegerDecoder, LongDecoder or DefaultDecoder.",
            default=STRING_DECODER,
            optional=True,
        )
    parser.flag("offsets-decoder", "Read records as those of __consumer_offsets.")
    parser.flag("transaction-log-decoder", "Read records as those of __transaction_state.")
    parser.flag("share-group-state-decoder", "Read records as those of __share_group_state.")
    parser.flag("cluster-metadata-decoder", "Read records as those of the metadata log.")
    parser.flag("remote-log-metadata-decoder", "Read records as those of __remote_log_metadata.")
    return parser


def _settings(options: Options) -> DumpSettings:
    from moldau.cli.kafka._dump_log import DumpSettings

    print_data = options.has("print-data-log") or any(options.has(each) for each in DECODER_OPTIONS)
    return DumpSettings(
        deep=options.has("deep-iteration") or print_data,
        print_data=print_data,
        skip_metadata=options.has("skip-record-metadata"),
        max_bytes=options.value("max-bytes"),
        decoder=_decoder(options),
    )


def _decoder(options: Options) -> Decoder:
    for option, package in INTERNAL_DECODERS.items():
        if options.has(option):
            return _coordinator_decoder(package)
    if options.has("cluster-metadata-decoder"):
        from moldau.cli.kafka._record_json import metadata_record

        return lambda record: (None, metadata_record(record.offset, record.value or b""))
    if options.has("remote-log-metadata-decoder"):
        from moldau.cli.kafka._record_json import remote_log_record

        return lambda record: (None, remote_log_record(record.offset, record.value or b""))
    show_key = _bytes_decoder(options.text("key-decoder-class"))
    show_value = _bytes_decoder(options.text("value-decoder-class"))
    return lambda record: (
        None if record.key is None else show_key(record.key),
        None if record.value is None else show_value(record.value),
    )


def _coordinator_decoder(package: str) -> Decoder:
    from moldau.cli.kafka._record_json import coordinator_record

    def decode(record: Record) -> tuple[str | None, str | None]:
        if record.key is None:
            raise CliError(
                f"Failed to decode message at offset {record.offset} using the specified decoder "
                "(message had a missing key)"
            )
        return coordinator_record(package, record.offset, record.key, record.value)

    return decode


def _bytes_decoder(class_name: str) -> Callable[[bytes], str]:
    """Kafka's own decoders by the last part of their name; there is no way to load somebody's Java class here."""
    kind = class_name.rpartition(".")[2]
    if kind == "StringDecoder":
        return lambda data: data.decode("utf-8", "replace")
    if kind in ("IntegerDecoder", "LongDecoder"):
        return lambda data: str(int.from_bytes(data, "big", signed=True))
    if kind == "DefaultDecoder":
        return lambda data: data.hex()
    raise CliError(f"The decoder {class_name} is not one this tool knows", hint="It cannot load Java classes.")


if __name__ == "__main__":
    raise SystemExit(main())
