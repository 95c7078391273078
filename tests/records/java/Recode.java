import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Reads every *.batch file of a directory with Kafka's own classes. Beside each it writes a *.txt file with one line per
 * record, and a *.java file with the same records as Kafka writes them in the same codec.
 */
public final class Recode {
    public static void main(String[] args) throws Exception {
        Path directory = Path.of(args[0]);
        List<Path> batches;
        try (Stream<Path> files = Files.list(directory)) {
            batches = files.filter(file -> file.toString().endsWith(".batch")).sorted().toList();
        }
        for (Path file : batches) {
            String name = file.getFileName().toString().replace(".batch", "");
            recode(Files.readAllBytes(file), directory.resolve(name + ".txt"), directory.resolve(name + ".java"));
        }
    }

    private static void recode(byte[] bytes, Path text, Path rewritten) throws Exception {
        StringBuilder lines = new StringBuilder();
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
            batch.ensureValid();
            MemoryRecordsBuilder builder = MemoryRecords.builder(
                ByteBuffer.allocate(bytes.length * 4 + 100_000), RecordBatch.CURRENT_MAGIC_VALUE,
                Compression.of(batch.compressionType()).build(), TimestampType.CREATE_TIME, batch.baseOffset(), 0L,
                batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.isTransactional(),
                batch.partitionLeaderEpoch());
            for (Record record : batch) {
                lines.append(describe(record)).append('\n');
                builder.appendWithOffset(record.offset(), record.timestamp(), record.key(), record.value(), record.headers());
            }
            ByteBuffer built = builder.build().buffer();
            byte[] copy = new byte[built.remaining()];
            built.get(copy);
            Files.write(rewritten, copy);
        }
        Files.writeString(text, lines.toString());
    }

    private static String describe(Record record) {
        StringBuilder line = new StringBuilder();
        line.append(record.offset()).append(' ').append(record.timestamp());
        line.append(' ').append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers())
            line.append(' ').append(hex(ByteBuffer.wrap(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8))))
                .append('=').append(hex(header.value() == null ? null : ByteBuffer.wrap(header.value())));
        return line.toString();
    }

    private static String hex(ByteBuffer buffer) {
        if (buffer == null)
            return "null";
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return "x" + HexFormat.of().formatHex(bytes);
    }
}
