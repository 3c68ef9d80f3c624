import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicPartition;

/**
 * Answers to Admin about some groups, and about the log ends of the partition 0 of a topic: one JSON line in, one out.
 *
 * <p>Requests: {@code {"bootstrap": place, "client_id": text, "groups": [ids], "topic": name, "timestamp": ms}}. Answers:
 * {@code {question: answer}}, where an answer that failed is {@code {"failed": class, "message": text}}. Answers about
 * others of the cluster's groups are left out. The end of the input ends the program.
 */
public final class AdminAnswers {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int TIMEOUT_MS = 30_000;

    private AdminAnswers() {
    }

    public static void main(String[] arguments) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
        System.exit(0);
    }

    @SuppressWarnings("removal") // listConsumerGroups
    private static Map<String, Object> answer(JsonNode request) {
        List<String> groups = new ArrayList<>();
        request.get("groups").forEach(group -> groups.add(group.textValue()));
        var partition = new TopicPartition(request.get("topic").textValue(), 0);
        long timestamp = request.get("timestamp").longValue();
        Map<String, Object> answers = new TreeMap<>();
        try (Admin admin = Admin.create(Map.of(
                "bootstrap.servers", request.get("bootstrap").textValue(),
                "client.id", request.get("client_id").textValue(),
                "default.api.timeout.ms", TIMEOUT_MS))) {
            answers.put("listGroups", told(() -> sorted(admin.listGroups().all().get().stream()
                .filter(group -> groups.contains(group.groupId())))));
            answers.put("listConsumerGroups", told(() -> sorted(admin.listConsumerGroups().all().get().stream()
                .filter(group -> groups.contains(group.groupId())))));
            answers.put("describeConsumerGroups", each(admin.describeConsumerGroups(groups).describedGroups()));
            var all = groups.stream().collect(Collectors.toMap(group -> group, group -> new ListConsumerGroupOffsetsSpec()));
            answers.put("listConsumerGroupOffsets", told(() -> admin.listConsumerGroupOffsets(all).all().get().entrySet()
                .stream().collect(Collectors.toMap(Map.Entry::getKey, one -> sorted(one.getValue().entrySet().stream())))));
            Map.of("latest", OffsetSpec.latest(), "timestamp", OffsetSpec.forTimestamp(timestamp)).forEach((name, spec) ->
                answers.put("listOffsets " + name, told(() ->
                    admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset())));
        }
        return answers;
    }

    private static Map<String, Object> each(Map<String, KafkaFuture<ConsumerGroupDescription>> groups) {
        Map<String, Object> described = new TreeMap<>();
        groups.forEach((group, future) -> described.put(group, told(() -> {
            var found = future.get();
            return List.of(found.groupState(), found.type(), found.partitionAssignor(), found.isSimpleConsumerGroup(),
                found.groupEpoch().toString(), found.targetAssignmentEpoch().toString(),
                sorted(found.members().stream().map(AdminAnswers::described)));
        })));
        return described;
    }

    private static List<Object> described(MemberDescription member) {
        return List.of(member.consumerId(), member.clientId(), member.host(), member.groupInstanceId().toString(),
            sorted(member.assignment().topicPartitions().stream()), member.memberEpoch().toString());
    }

    private static List<String> sorted(Stream<?> all) {
        return all.map(Object::toString).sorted().toList();
    }

    private static Object told(Callable<Object> ask) {
        try {
            return ask.call();
        } catch (Exception error) {
            Throwable cause = error.getCause() == null ? error : error.getCause();
            return Map.of("failed", cause.getClass().getSimpleName(), "message", String.valueOf(cause.getMessage()));
        }
    }
}
