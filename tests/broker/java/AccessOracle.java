// Asks Apache Kafka's own authorizer who may do what, so that tests can compare.
// Arguments: a JSON file with a list of worlds (entries, a default, questions), and the file for the lists of answers.

import java.io.File;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

public class AccessOracle {
    record Context(KafkaPrincipal principal, InetAddress clientAddress) implements AuthorizableRequestContext {
        public String listenerName() { return "PLAINTEXT"; }
        public SecurityProtocol securityProtocol() { return SecurityProtocol.PLAINTEXT; }
        public int requestType() { return 0; }
        public int requestVersion() { return 0; }
        public String clientId() { return "client"; }
        public int correlationId() { return 0; }
    }

    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        List<Object> answers = new ArrayList<>();
        for (Map<?, ?> world : json.readValue(new File(args[0]), Map[].class)) {
            answers.add(answers(world));
        }
        json.writeValue(new File(args[1]), answers);
    }

    private static List<Boolean> answers(Map<?, ?> world) throws Exception {
        StandardAuthorizer authorizer = new StandardAuthorizer();
        authorizer.configure(Map.of(
            StandardAuthorizer.SUPER_USERS_CONFIG, "User:root",
            StandardAuthorizer.ALLOW_EVERYONE_IF_NO_ACL_IS_FOUND_CONFIG, String.valueOf(world.get("open"))));
        authorizer.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        for (Object each : (List<?>) world.get("entries")) {
            List<?> entry = (List<?>) each;
            authorizer.addAcl(Uuid.randomUuid(), new StandardAcl(
                ResourceType.fromCode(code(entry.get(0))), (String) entry.get(1), PatternType.fromCode(code(entry.get(2))),
                (String) entry.get(3), (String) entry.get(4),
                AclOperation.fromCode(code(entry.get(5))), AclPermissionType.fromCode(code(entry.get(6)))));
        }
        authorizer.completeInitialLoad();
        List<Boolean> allowed = new ArrayList<>();
        for (Object each : (List<?>) world.get("questions")) {
            List<?> question = (List<?>) each;
            String[] principal = ((String) question.get(0)).split(":", 2);
            Context context = new Context(
                new KafkaPrincipal(principal[0], principal[1]), InetAddress.getByName((String) question.get(1)));
            ResourcePattern resource = new ResourcePattern(
                ResourceType.fromCode(code(question.get(3))), (String) question.get(4), PatternType.LITERAL);
            Action action = new Action(AclOperation.fromCode(code(question.get(2))), resource, 1, true, true);
            allowed.add(authorizer.authorize(context, List.of(action)).get(0) == AuthorizationResult.ALLOWED);
        }
        return allowed;
    }

    private static byte code(Object value) {
        return ((Number) value).byteValue();
    }
}
