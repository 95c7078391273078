import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.function.Predicate;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigOp.OpType;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DescribeTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/**
 * Goes through what Apache's Admin client can ask of one node and prints what it was told, as one JSON object.
 * Arguments: the bootstrap servers, a topic that holds ten records in partition 0, and the name of a topic to create.
 */
public final class AdminTour {
    private final Map<String, Object> seen = new LinkedHashMap<>();
    private final Admin admin;

    private AdminTour(Admin admin) {
        this.admin = admin;
    }

    public static void main(String[] arguments) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            AdminTour tour = new AdminTour(admin);
            tour.cluster();
            tour.topics(arguments[2]);
            tour.configs(arguments[2]);
            tour.records(arguments[1]);
            tour.storage(arguments[1]);
            tour.partitions(arguments[1]);
            tour.quotasAndSecurity();
            tour.deletion(arguments[2]);
            System.out.println(new ObjectMapper().writeValueAsString(tour.seen));
        }
    }

    /** The result, or the name of the error. */
    private static Object told(KafkaFuture<?> future) throws Exception {
        try {
            Object value = future.get();
            return value == null ? "done" : value;
        } catch (ExecutionException failure) {
            return failure.getCause().getClass().getSimpleName();
        }
    }

    /** Apache's broker shows a change a moment after its controller has acknowledged it: look again for a while. */
    private static <T> T once(Predicate<T> settled, Callable<T> look) throws Exception {
        T found = look.call();
        for (int i = 0; i < 100 && !settled.test(found); i++) {
            Thread.sleep(20);
            found = look.call();
        }
        return found;
    }

    private void cluster() throws Exception {
        var described = admin.describeCluster();
        seen.put("nodes", described.nodes().get().stream().map(node -> node.id() + "@" + node.host() + ":" + node.port()).toList());
        seen.put("controller", described.controller().get().id());
        seen.put("cluster id", described.clusterId().get());
        var features = admin.describeFeatures().featureMetadata().get();
        seen.put("metadata version", features.finalizedFeatures().get("metadata.version").maxVersionLevel());
        seen.put("features", new TreeSet<>(features.supportedFeatures().keySet()));
        var quorum = admin.describeMetadataQuorum().quorumInfo().get();
        seen.put("quorum leader", quorum.leaderId());
        seen.put("voters", quorum.voters().stream().map(voter -> voter.replicaId()).toList());
        seen.put("quorum caught up", quorum.voters().get(0).logEndOffset() >= quorum.highWatermark());
    }

    private void topics(String name) throws Exception {
        NewTopic wanted = new NewTopic(name, Optional.of(2), Optional.empty()).configs(Map.of("segment.ms", "12345"));
        var dry = admin.createTopics(List.of(wanted), new CreateTopicsOptions().validateOnly(true));
        seen.put("validated", told(dry.all()));
        seen.put("exists after validation", admin.listTopics().names().get().contains(name));
        var created = admin.createTopics(List.of(wanted));
        Uuid id = created.topicId(name).get();
        seen.put("created", created.numPartitions(name).get() + "x" + created.replicationFactor(name).get());
        seen.put("created with", created.config(name).get().get("segment.ms").value());
        seen.put("again", told(admin.createTopics(List.of(wanted)).all()));
        seen.put("bad name", told(admin.createTopics(List.of(new NewTopic("no/slashes", 1, (short) 1))).all()));
        seen.put("too many replicas", told(admin.createTopics(List.of(new NewTopic("many", 1, (short) 3))).all()));
        seen.put("bad setting",
            told(admin.createTopics(List.of(new NewTopic("bad", 1, (short) 1).configs(Map.of("segment.ms", "soon")))).all()));
        seen.put("assigned", told(admin.createTopics(List.of(new NewTopic(name + "-assigned", Map.of(0, List.of(1))))).all()));
        once(names -> names.contains(name), () -> admin.listTopics().names().get());
        TopicDescription byName = admin.describeTopics(List.of(name)).allTopicNames().get().get(name);
        TopicDescription byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id))).allTopicIds().get().get(id);
        seen.put("described alike", byName.name().equals(byId.name()) && byName.topicId().equals(byId.topicId())
            && byName.partitions().size() == byId.partitions().size());
        seen.put("described", byName.partitions().stream()
            .map(each -> each.partition() + ":" + each.leader().id() + ":" + each.replicas().size() + ":" + each.isr().size())
            .toList());
        seen.put("unknown topic", told(admin.describeTopics(List.of("nowhere")).allTopicNames()));
        seen.put("grown", told(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all()));
        seen.put("shrunk", told(admin.createPartitions(Map.of(name, NewPartitions.increaseTo(1))).all()));
        var one = new DescribeTopicsOptions().partitionSizeLimitPerResponse(1);
        seen.put("partitions after growing, one per answer", once(count -> count == 4, () ->
            admin.describeTopics(TopicCollection.ofTopicNames(List.of(name)), one).allTopicNames().get().get(name).partitions().size()));
    }

    private void configs(String name) throws Exception {
        ConfigResource topic = new ConfigResource(ConfigResource.Type.TOPIC, name);
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, "1");
        seen.put("topic setting", entry(topic, "segment.ms", "12345"));
        seen.put("topic default", entry(topic, "segment.bytes", "1073741824"));
        seen.put("altered", told(alter(topic, "max.message.bytes", "2000", OpType.SET)));
        seen.put("altered setting", entry(topic, "max.message.bytes", "2000"));
        seen.put("appended", told(alter(topic, "cleanup.policy", "compact", OpType.APPEND)));
        seen.put("appended setting", entry(topic, "cleanup.policy", "delete,compact"));
        seen.put("deleted", told(alter(topic, "segment.ms", "", OpType.DELETE)));
        seen.put("deleted setting", entry(topic, "segment.ms", "604800000"));
        seen.put("refused", told(alter(topic, "segment.bytes", "-5", OpType.SET)));
        seen.put("unknown setting", told(alter(topic, "no.such.setting", "1", OpType.SET)));
        seen.put("broker altered", told(alter(broker, "log.cleaner.threads", "2", OpType.SET)));
        seen.put("broker setting", entry(broker, "log.cleaner.threads", "2"));
        seen.put("read-only", told(alter(broker, "node.id", "7", OpType.SET)));
        told(alter(broker, "log.cleaner.threads", "", OpType.DELETE));
    }

    private KafkaFuture<Void> alter(ConfigResource resource, String name, String value, OpType how) {
        Collection<AlterConfigOp> changes = List.of(new AlterConfigOp(new ConfigEntry(name, value), how));
        return admin.incrementalAlterConfigs(Map.of(resource, changes)).all();
    }

    private Map<String, Object> entry(ConfigResource resource, String name, String expected) throws Exception {
        ConfigEntry found = once(entry -> expected.equals(entry.value()), () ->
            admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name));
        Map<String, Object> facts = new LinkedHashMap<>();
        facts.put("value", found.value());
        facts.put("source", found.source().name());
        facts.put("type", found.type().name());
        facts.put("read only", found.isReadOnly());
        return facts;
    }

    private void records(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        seen.put("offsets before", offsets(partition));
        var deleted = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(4)));
        seen.put("low watermark", deleted.lowWatermarks().get(partition).get().lowWatermark());
        seen.put("beyond the end", told(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(99))).all()));
        seen.put("offsets after", offsets(partition));
        var producers = admin.describeProducers(List.of(partition)).all().get().get(partition).activeProducers();
        seen.put("producers", producers.stream().map(each -> each.producerEpoch() + ":" + each.lastSequence()).toList());
    }

    private Map<String, Object> offsets(TopicPartition partition) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        Map<String, OffsetSpec> specs = Map.of("earliest", OffsetSpec.earliest(), "latest", OffsetSpec.latest(),
            "max timestamp", OffsetSpec.maxTimestamp(), "earliest local", OffsetSpec.earliestLocal(),
            "by time", OffsetSpec.forTimestamp(1_700_000_000_005L), "after all", OffsetSpec.forTimestamp(1_900_000_000_000L));
        for (var spec : specs.entrySet()) {
            var answer = admin.listOffsets(Map.of(partition, spec.getValue())).partitionResult(partition).get();
            found.put(spec.getKey(), answer.offset());
        }
        return found;
    }

    private void storage(String topic) throws Exception {
        var directories = admin.describeLogDirs(List.of(1)).allDescriptions().get().get(1);
        List<Object> found = new ArrayList<>();
        for (var directory : directories.values()) {
            var replica = directory.replicaInfos().get(new TopicPartition(topic, 0));
            if (directory.error() == null && replica != null) {
                found.add(replica.size() > 0 && replica.offsetLag() == 0 && !replica.isFuture());
                found.add(directory.totalBytes().orElse(0) > 0 && directory.usableBytes().orElse(0) > 0);
            }
        }
        seen.put("log directories", directories.size());
        seen.put("replica in a directory", found);
    }

    private void partitions(String topic) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        var elected = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get();
        seen.put("elected", elected.get(partition).map(error -> error.getClass().getSimpleName()).orElse("done"));
        seen.put("reassignments", admin.listPartitionReassignments().reassignments().get().size());
    }

    private void quotasAndSecurity() throws Exception {
        ClientQuotaEntity user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, "ada"));
        var set = new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 1e6)));
        seen.put("quota set", told(admin.alterClientQuotas(List.of(set)).all()));
        ClientQuotaFilter all = ClientQuotaFilter.all();
        seen.put("quotas", once(quotas -> !quotas.isEmpty(), () ->
            admin.describeClientQuotas(all).entities().get().getOrDefault(user, Map.of())));
        var unset = new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null)));
        told(admin.alterClientQuotas(List.of(unset)).all());
        seen.put("quotas after", once(count -> count == 0, () -> admin.describeClientQuotas(all).entities().get().size()));
        seen.put("acls", told(admin.describeAcls(AclBindingFilter.ANY).values()));
    }

    private void deletion(String name) throws Exception {
        seen.put("topic deleted", told(admin.deleteTopics(List.of(name)).all()));
        seen.put("topic deleted twice", told(admin.deleteTopics(List.of(name)).all()));
        seen.put("id unknown", told(admin.deleteTopics(TopicCollection.ofTopicIds(List.of(Uuid.randomUuid()))).all()));
        seen.put("listed after", once(listed -> !listed, () -> admin.listTopics().names().get().contains(name)));
    }
}
