import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Prints what Admin and consumers of the newest release see of the groups of {@code kafka_world.py}, a line for each
 * question, and how they may not delete a group. An exception is printed by its class.
 */
public final class NewestClients {
    private static final List<TopicPartition> ORDERS =
        List.of(new TopicPartition("orders", 0), new TopicPartition("orders", 1));

    public static void main(String[] arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(settings)) {
            print("groups", () -> admin.listGroups().all().get().stream()
                .map(group -> group.groupId() + " " + group.type()).sorted().toList());
            print("share", () -> {
                var group = admin.describeShareGroups(List.of("share")).all().get().get("share");
                var members = group.members().stream().map(member -> List.of(member.consumerId(), member.clientId(),
                    member.host(), member.memberEpoch(), member.assignment().topicPartitions().stream()
                        .sorted(Comparator.comparing(TopicPartition::toString)).toList())).toList();
                return List.of(group.groupState(), group.groupEpoch(), group.targetAssignmentEpoch(), members);
            });
            print("delete", () -> admin.deleteConsumerGroups(List.of("static")).all().get());
        }
        for (String protocol : List.of("classic", "consumer")) {
            Map<String, Object> all = new HashMap<>(settings);
            all.putAll(Map.of("group.id", "simple", "group.protocol", protocol));
            try (var consumer = new KafkaConsumer<>(all, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
                consumer.assign(ORDERS);
                print(protocol, () -> consumer.committed(Set.copyOf(ORDERS)).entrySet().stream()
                    .map(Object::toString).sorted().toList());
            }
        }
        System.exit(0);
    }

    private static void print(String question, Callable<Object> ask) {
        Object answer;
        try {
            answer = ask.call();
        } catch (Exception error) {
            answer = (error.getCause() == null ? error : error.getCause()).getClass().getSimpleName();
        }
        System.out.println(question + ": " + answer);
    }
}
