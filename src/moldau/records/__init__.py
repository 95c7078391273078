"""Record batches: layout, checksum, compression, building and reading. Bytes in, bytes out; no IO."""
