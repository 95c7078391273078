// Prints every configuration key of the Apache Kafka on the class path as one JSON object, for comparison with
// moldau.config. It reports facts only (names, types, defaults, limits, update modes, synonyms), never documentation.
// Run it through codegen/dump_configs/dump.py.

import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

public class DumpConfigs {
    public static void main(String[] args) throws Exception {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("broker", keys(AbstractKafkaConfig.CONFIG_DEF, modes));
        out.put("broker_dynamic_only", keys(QuotaConfig.brokerQuotaConfigs(), modes));
        out.put("topic", keys(LogConfig.configDefCopy(), null));
        out.put("group", keys(GroupConfig.CONFIG_DEF, null));
        out.put("client_metrics", keys(ClientMetricsConfigs.configDef(), null));
        out.put("user_quota", keys(QuotaConfig.userAndClientQuotaConfigs(), null));
        out.put("ip_quota", keys(QuotaConfig.ipConfigs(), null));
        out.put("topic_synonyms", topicSynonyms());
        out.put("group_synonyms", groupSynonyms());
        out.put("broker_synonyms", brokerSynonyms());
        out.put("unlisted_dynamic", unlisted(modes));
        out.put("topic_order", new ArrayList<>(new LogConfig(new Properties()).nonInternalValues().keySet()));
        out.put("group_order", new ArrayList<>(new GroupConfig(new Properties()).nonInternalValues().keySet()));
        out.put("client_metrics_order",
            new ArrayList<>(new ClientMetricsConfigs(new Properties()).nonInternalValues().keySet()));
        out.put("broker_order", brokerOrder());
        out.put("topic_defaults_of_a_default_node", topicDefaults());
        // Kafka's own logging owns standard output, so the result goes to the file named on the command line.
        new ObjectMapper().writeValue(new File(args[0]), out);
    }

    private static List<Object> keys(ConfigDef def, Map<String, String> modes) throws Exception {
        List<Object> result = new ArrayList<>();
        for (ConfigDef.ConfigKey key : def.configKeys().values()) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("name", key.name);
            row.put("type", key.type.name());
            row.put("required", !key.hasDefault());
            row.put("default", key.hasDefault() ? ConfigDef.convertToString(key.defaultValue, key.type) : null);
            row.put("validator", validator(key.validator));
            row.put("importance", key.importance.name());
            row.put("internal", key.internalConfig);
            if (modes != null)
                row.put("update_mode", modes.getOrDefault(key.name, "read-only"));
            result.add(row);
        }
        return result;
    }

    /** A validator as data: its class, what it says of itself, and its private limits. */
    private static Object validator(ConfigDef.Validator validator) throws Exception {
        if (validator == null)
            return null;
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("class", validator.getClass().getSimpleName());
        if (!validator.toString().contains("@"))
            row.put("says", validator.toString());
        for (Field field : validator.getClass().getDeclaredFields()) {
            if (Modifier.isStatic(field.getModifiers()))
                continue;
            try {
                field.setAccessible(true);
                Object value = field.get(validator);
                if (value == null || value instanceof Boolean || value instanceof String)
                    row.put(field.getName(), value);
                else if (value instanceof Number number)
                    row.put(field.getName(), number);
                else if (value instanceof ConfigDef.Validator inner)
                    row.put(field.getName(), validator(inner));
                else if (value instanceof Collection<?> all) {
                    List<Object> items = new ArrayList<>();
                    for (Object item : all)
                        items.add(item instanceof ConfigDef.Validator v ? validator(v) : item.toString());
                    row.put(field.getName(), items);
                }
            } catch (RuntimeException inaccessible) {
                row.put(field.getName(), "inaccessible");
            }
        }
        return row;
    }

    private static Map<String, Object> topicSynonyms() {
        Map<String, Object> result = new TreeMap<>();
        ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.forEach((name, synonyms) -> {
            List<Object> rows = new ArrayList<>();
            for (ConfigSynonym synonym : synonyms)
                rows.add(List.of(synonym.name(), Long.parseLong(synonym.converter().apply("1"))));
            result.put(name, rows);
        });
        return result;
    }

    private static Map<String, Object> groupSynonyms() {
        Map<String, Object> result = new TreeMap<>();
        GroupConfig.ALL_GROUP_CONFIG_SYNONYMS.forEach((name, broker) -> result.put(name, broker.orElse(null)));
        return result;
    }

    private static Map<String, Object> brokerSynonyms() {
        Map<String, Object> result = new TreeMap<>();
        for (String name : AbstractKafkaConfig.CONFIG_DEF.names()) {
            List<String> synonyms = DynamicBrokerConfig.brokerConfigSynonyms(name, true);
            if (synonyms.size() > 1)
                result.put(name, synonyms);
        }
        return result;
    }

    /** Names that may be altered at run time and yet are defined in no table. */
    private static Map<String, Object> unlisted(Map<String, String> modes) {
        Map<String, Object> result = new TreeMap<>(modes);
        result.keySet().removeAll(AbstractKafkaConfig.CONFIG_DEF.names());
        result.keySet().removeAll(QuotaConfig.brokerQuotaConfigs().names());
        return result;
    }

    private static Map<String, Object> oneNode() {
        Map<String, Object> props = new HashMap<>();
        props.put("node.id", "1");
        props.put("process.roles", "broker,controller");
        props.put("listeners", "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093");
        props.put("controller.listener.names", "CONTROLLER");
        props.put("controller.quorum.voters", "1@localhost:9093");
        return props;
    }

    private static List<Object> brokerOrder() {
        return new ArrayList<>(new kafka.server.KafkaConfig(oneNode(), false).nonInternalValues().keySet());
    }

    private static Map<String, Object> topicDefaults() {
        Map<String, Object> result = new TreeMap<>();
        LogConfig config = LogConfig.fromProps(
            new kafka.server.KafkaConfig(oneNode(), false).extractLogConfigMap(), new Properties());
        config.nonInternalValues().forEach((name, value) ->
            result.put(name, ConfigDef.convertToString(value, LogConfig.configType(name).get())));
        return result;
    }
}
