import java.io.File;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.common.RequestLocal;
import org.apache.kafka.server.storage.log.FetchIsolation;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.FetchDataInfo;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.log.VerificationGuard;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Opens a partition's directory with Apache's own log, prints what it finds, and may append to it.
 *
 * Arguments: directory, "clean" or "crashed", how many batches to append, "close" or "kill". Appended batches are
 * idempotent (producer 900), with a roll in the middle and an aborted transaction (producer 901) at the end.
 */
public final class OpenLog {
    private static final int EPOCH = 7;

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        UnifiedLog log = UnifiedLog.create(
            new File(args[0]),
            new LogConfig(Map.of("index.interval.bytes", "500", "file.delete.delay.ms", "0")),
            0L,
            0L,
            scheduler,
            new BrokerTopicStats(false),
            Time.SYSTEM,
            900_000,
            new ProducerStateManagerConfig(86_400_000, false),
            600_000,
            new LogDirFailureChannel(1),
            args[1].equals("clean"),
            Optional.empty());
        append(log, Integer.parseInt(args[2]));
        log.updateHighWatermark(log.logEndOffset());
        print(log);
        if (args[3].equals("close")) {
            log.close();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void append(UnifiedLog log, int count) throws Exception {
        long now = System.currentTimeMillis();
        for (int i = 0; i < count; i++) {
            SimpleRecord[] records = new SimpleRecord[3];
            for (int j = 0; j < records.length; j++) {
                records[j] = new SimpleRecord(now + i, ("key-" + i).getBytes(), new byte[100]);
            }
            log.appendAsLeader(
                MemoryRecords.withIdempotentRecords(Compression.NONE, 900L, (short) 2, i * 3, records), EPOCH);
            if (i == count / 2) {
                log.roll();
            }
        }
        if (count > 0) {
            SimpleRecord one = new SimpleRecord(now + count, "k".getBytes(), "v".getBytes());
            log.appendAsLeader(
                MemoryRecords.withTransactionalRecords(Compression.NONE, 901L, (short) 0, 0, one), EPOCH);
            log.appendAsLeader(
                MemoryRecords.withEndTransactionMarker(
                    901L, (short) 0, new EndTransactionMarker(ControlRecordType.ABORT, 1)),
                EPOCH,
                AppendOrigin.COORDINATOR,
                RequestLocal.noCaching(),
                VerificationGuard.SENTINEL,
                (short) 1);
        }
    }

    private static void print(UnifiedLog log) throws Exception {
        System.out.println("end " + log.logEndOffset());
        System.out.println("stable " + log.lastStableOffset());
        List<String> epochs = new ArrayList<>();
        log.leaderEpochCache().epochEntries().forEach(e -> epochs.add(e.epoch() + "@" + e.startOffset()));
        System.out.println("epochs " + String.join(",", epochs));
        log.activeProducers().stream()
            .sorted((a, b) -> Long.compare(a.producerId(), b.producerId()))
            .forEach(p -> System.out.println(
                "producer " + p.producerId() + " " + p.producerEpoch() + " " + p.lastSequence() + " "
                    + p.coordinatorEpoch() + " " + p.currentTxnStartOffset()));
        long offset = log.logStartOffset();
        while (offset < log.logEndOffset()) {
            FetchDataInfo data = log.read(offset, 10_000, FetchIsolation.TXN_COMMITTED, true);
            data.abortedTransactions.ifPresent(list -> list.forEach(
                t -> System.out.println("aborted " + t.producerId() + " " + t.firstOffset())));
            long next = offset;
            for (RecordBatch batch : data.records.batches()) {
                batch.ensureValid();
                System.out.println("batch " + batch.baseOffset() + " " + batch.lastOffset() + " "
                    + batch.partitionLeaderEpoch() + " " + batch.maxTimestamp() + " " + batch.checksum());
                next = batch.nextOffset();
            }
            if (next == offset) {
                break;
            }
            offset = next;
        }
    }
}
