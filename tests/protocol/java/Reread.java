import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.StringJoiner;
import org.apache.kafka.common.errors.InvalidMetadataException;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Reads messages with Kafka's own classes and writes them again.
 *
 * Each line of the input asks one thing, each line of the output answers it: the bytes as Kafka writes what it read,
 * and its JSON. Lines are "message CLASS VERSION HEX", "metadata HEX", "group KEYHEX VALUEHEX", "errors", "apis".
 */
public class Reread {
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws Exception {
        StringBuilder out = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            out.append(switch (words[0]) {
                case "message" -> message(words[1], Short.parseShort(words[2]), HEX.parseHex(words[3]));
                case "metadata" -> metadata(HEX.parseHex(words[1]));
                case "group" -> group(HEX.parseHex(words[1]), HEX.parseHex(words[2]));
                case "errors" -> errors();
                case "apis" -> apis();
                default -> throw new IllegalArgumentException(line);
            }).append('\n');
        }
        Files.writeString(Path.of(arguments[1]), out);
    }

    private static String message(String name, short version, byte[] data) throws Exception {
        Class<?> type = Class.forName(name);
        ByteBuffer buffer = ByteBuffer.wrap(data);
        Message message =
            (Message) type.getConstructor(Readable.class, short.class).newInstance(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) {
            return "left over: " + buffer.remaining();
        }
        Method toJson = Class.forName(name + "JsonConverter").getMethod("write", type, short.class);
        return written(message, version) + " " + (JsonNode) toJson.invoke(null, message, version);
    }

    private static String written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HEX.formatHex(buffer.array());
    }

    private static String metadata(byte[] data) {
        MetadataRecordSerde serde = MetadataRecordSerde.INSTANCE;
        ApiMessageAndVersion record = serde.read(new ByteBufferAccessor(ByteBuffer.wrap(data)), data.length);
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(serde.recordSize(record, cache));
        serde.write(record, cache, new ByteBufferAccessor(buffer));
        return record.message().getClass().getSimpleName() + " " + record.version() + " " + HEX.formatHex(buffer.array());
    }

    private static String group(byte[] key, byte[] value) {
        GroupCoordinatorRecordSerde serde = new GroupCoordinatorRecordSerde();
        CoordinatorRecord record = serde.deserialize(ByteBuffer.wrap(key), ByteBuffer.wrap(value));
        ApiMessage stored = record.value().message();
        return record.key().getClass().getSimpleName() + " " + stored.getClass().getSimpleName() + " "
            + HEX.formatHex(serde.serializeKey(record)) + " " + HEX.formatHex(serde.serializeValue(record));
    }

    private static String errors() {
        StringJoiner all = new StringJoiner(" ");
        for (Errors error : Errors.values()) {
            boolean retriable = error.exception() instanceof RetriableException;
            boolean metadata = error.exception() instanceof InvalidMetadataException;
            all.add(error.name() + "," + error.code() + "," + retriable + "," + metadata);
        }
        return all.toString();
    }

    private static String apis() {
        StringJoiner all = new StringJoiner(" ");
        for (ApiKeys key : ApiKeys.values()) {
            if (key.hasValidVersion()) {
                for (short version : key.allVersions()) {
                    all.add(key.name() + "," + key.id + "," + version + "," + key.requestHeaderVersion(version) + ","
                        + key.responseHeaderVersion(version));
                }
            }
        }
        return all.toString();
    }
}
