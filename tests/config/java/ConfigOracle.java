// Answers questions about configurations with Apache Kafka's own code, so that tests can compare.
// Arguments: a JSON file with a list of questions, and the file to write the list of answers to.

import java.io.File;
import java.io.StringReader;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;

import com.fasterxml.jackson.databind.ObjectMapper;
import kafka.server.ConfigHelper;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.message.DescribeConfigsRequestData.DescribeConfigsResource;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResourceResult;
import org.apache.kafka.common.message.DescribeConfigsResponseData.DescribeConfigsResult;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.metadata.ConfigRepository;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;
import scala.collection.immutable.Nil$;

public class ConfigOracle {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<Object> answers = new ArrayList<>();
        for (Map<?, ?> question : json.readValue(new File(args[0]), Map[].class)) {
            Map<String, Object> answer = new LinkedHashMap<>();
            try {
                answer.put("result", answer(question));
            } catch (Exception error) {
                answer.put("error", String.valueOf(error.getMessage()));
                answer.put("kind", error.getClass().getSimpleName());
            }
            answers.add(answer);
        }
        json.writeValue(new File(args[1]), answers);
    }

    private static Object answer(Map<?, ?> question) throws Exception {
        switch ((String) question.get("ask")) {
            case "properties":
                Properties properties = new Properties();
                properties.load(new StringReader((String) question.get("text")));
                return new TreeMap<>(properties);
            case "parse":
                ConfigDef.Type type = ConfigDef.Type.valueOf((String) question.get("type"));
                return ConfigDef.convertToString(ConfigDef.parseType("key", question.get("text"), type), type);
            case "metrics":
                ClientMetricsConfigs.validate((String) question.get("name"), settings(question, "overrides"));
                return null;
            default:
                return answerForNode(question, node(question));
        }
    }

    private static Object answerForNode(Map<?, ?> question, KafkaConfig config) throws Exception {
        Map<String, String> overrides = settings(question, "overrides");
        switch ((String) question.get("ask")) {
            case "load":
                return loaded(config);
            case "topic":
                LogConfig.validate(settings(question, "existing"), overrides, config.extractLogConfigMap(),
                    config.remoteLogManagerConfig().isRemoteStorageSystemEnabled());
                return null;
            case "group":
                GroupConfig.validate(overrides, config.groupCoordinatorConfig(), config.shareGroupConfig());
                return null;
            case "dynamic":
                config.dynamicConfig().validate(properties(overrides), (Boolean) question.get("per_broker"));
                return null;
            case "describe":
                return described(config, (Integer) question.get("resource"), (String) question.get("name"), overrides);
            default:
                throw new IllegalStateException("unknown question");
        }
    }

    private static KafkaConfig node(Map<?, ?> question) {
        KafkaConfig config = KafkaConfig.fromProps(properties(settings(question, "static")), false);
        config.dynamicConfig().initialize(scala.Option.empty());
        config.dynamicConfig().updateDefaultConfig(properties(settings(question, "default")), false);
        config.dynamicConfig().updateBrokerConfig(
            config.nodeId(), properties(settings(question, "broker")), false);
        return config;
    }

    private static Object loaded(KafkaConfig config) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("advertised", config.effectiveAdvertisedBrokerListeners().mkString(" "));
        result.put("controllers", config.effectiveAdvertisedControllerListeners().mkString(" "));
        result.put("between_brokers", config.interBrokerListenerName().value());
        result.put("metadata_log_dir", config.metadataLogDir());
        return result;
    }

    private static Object described(KafkaConfig config, int type, String name, Map<String, String> overrides) {
        ConfigRepository repository = resource -> properties(overrides);
        MetadataCache cache = (MetadataCache) Proxy.newProxyInstance(
            MetadataCache.class.getClassLoader(), new Class<?>[] {MetadataCache.class},
            (proxy, method, arguments) -> method.getName().equals("contains"));
        DescribeConfigsResource resource =
            new DescribeConfigsResource().setResourceType((byte) type).setResourceName(name);
        DescribeConfigsResult result = new ConfigHelper(cache, config, repository)
            .describeConfigs(Nil$.MODULE$.$colon$colon(resource), true, false).head();
        if (result.errorCode() != 0)
            throw new IllegalStateException(result.errorMessage());
        List<Object> rows = new ArrayList<>();
        for (DescribeConfigsResourceResult entry : result.configs()) {
            List<Object> synonyms = new ArrayList<>();
            entry.synonyms().forEach(synonym ->
                synonyms.add(list(synonym.name(), synonym.value(), synonym.source())));
            rows.add(list(entry.name(), entry.value(), entry.configSource(), entry.readOnly(), entry.isSensitive(),
                entry.configType(), synonyms));
        }
        return rows;
    }

    private static List<Object> list(Object... items) {
        return new ArrayList<>(java.util.Arrays.asList(items));
    }

    @SuppressWarnings("unchecked")
    private static Map<String, String> settings(Map<?, ?> question, String name) {
        Object value = question.get(name);
        return value == null ? new HashMap<>() : new LinkedHashMap<>((Map<String, String>) value);
    }

    private static Properties properties(Map<String, String> settings) {
        Properties properties = new Properties();
        properties.putAll(settings);
        return properties;
    }
}
