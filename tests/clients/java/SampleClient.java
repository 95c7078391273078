import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Apache's Java producer and consumer, told what to do by a JSON object on standard input; the answer is one on standard
 * output. Bytes are written in base 64. The consumer is assigned its partition, so it needs no group.
 */
public final class SampleClient {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        JsonNode request = JSON.readTree(System.in);
        Map<String, Object> config = new HashMap<>();
        request.get("config").fields().forEachRemaining(each -> config.put(each.getKey(), each.getValue().asText()));
        TopicPartition partition = new TopicPartition(request.get("topic").asText(), request.path("partition").asInt(0));
        ObjectNode answer = JSON.createObjectNode();
        switch (arguments[0]) {
            case "produce" -> produce(config, partition, request.get("records"), answer.putArray("sent"));
            case "consume" -> consume(config, partition, request, answer.putArray("records"));
            case "offsets" -> offsets(config, partition, request.get("timestamps"), answer);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        System.out.println(JSON.writeValueAsString(answer));
    }

    private static void produce(Map<String, Object> config, TopicPartition partition, JsonNode records, ArrayNode sent)
            throws Exception {
        try (var producer = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (JsonNode record : records) {
                List<Header> headers = new ArrayList<>();
                for (JsonNode header : record.get("headers")) {
                    headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
                }
                Long timestamp = record.hasNonNull("timestamp") ? record.get("timestamp").asLong() : null;
                futures.add(producer.send(new ProducerRecord<>(partition.topic(), partition.partition(), timestamp,
                    bytes(record.get("key")), bytes(record.get("value")), headers)));
            }
            producer.flush();
            for (Future<RecordMetadata> future : futures) {
                ObjectNode one = sent.addObject();
                try {
                    RecordMetadata metadata = future.get();
                    one.put("offset", metadata.offset()).put("timestamp", metadata.timestamp());
                } catch (ExecutionException failure) {
                    one.put("error", failure.getCause().getClass().getSimpleName());
                }
            }
        }
    }

    private static void consume(Map<String, Object> config, TopicPartition partition, JsonNode request, ArrayNode found) {
        int count = request.get("count").asInt();
        long deadline = System.nanoTime() + Duration.ofSeconds(20).toNanos();
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, request.path("offset").asLong(0));
            while (found.size() < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                    ObjectNode one = found.addObject();
                    one.put("offset", record.offset()).put("timestamp", record.timestamp());
                    one.put("timestamp_type", record.timestampType().name);
                    one.put("key", record.key()).put("value", record.value());
                    one.put("leader_epoch", record.leaderEpoch().orElse(-1));
                    ArrayNode headers = one.putArray("headers");
                    record.headers().forEach(header -> headers.addArray().add(header.key()).add(header.value()));
                }
            }
        }
    }

    private static void offsets(Map<String, Object> config, TopicPartition partition, JsonNode timestamps, ObjectNode answer) {
        try (var consumer = new KafkaConsumer<>(config, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            answer.put("beginning", consumer.beginningOffsets(List.of(partition)).get(partition));
            answer.put("end", consumer.endOffsets(List.of(partition)).get(partition));
            ArrayNode at = answer.putArray("at");
            for (JsonNode timestamp : timestamps) {
                OffsetAndTimestamp hit = consumer.offsetsForTimes(Map.of(partition, timestamp.asLong())).get(partition);
                if (hit == null) at.addNull(); else at.addArray().add(hit.offset()).add(hit.timestamp());
            }
        }
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node == null || node.isNull() ? null : node.binaryValue();
    }
}
