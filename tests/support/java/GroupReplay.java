import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.message.ListGroupsResponseData.ListedGroup;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.coordinator.common.runtime.CoordinatorExecutor;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorTimer;
import org.apache.kafka.coordinator.group.GroupConfigManager;
import org.apache.kafka.coordinator.group.GroupCoordinatorConfig;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorShard;
import org.apache.kafka.coordinator.group.metrics.GroupCoordinatorMetrics;
import org.apache.kafka.coordinator.group.modern.share.ShareGroupConfig;
import org.apache.kafka.timeline.SnapshotRegistry;

/**
 * Says what Kafka's own group coordinator makes of records, without a broker: one JSON line in, one out.
 *
 * <p>{@code {"replay": [["key in hex", "value in hex" or null], ...]}} replays the records as a coordinator does that
 * loads its partition, and answers {@code {"groups": {name: {"type", "state", "protocol_type", ...}}}}: what it then
 * lists and describes. {@code {"partitions": [names], "count": 50}} answers {@code {"partitions": [...]}}: the offsets
 * partition of each group. An exception is answered as {@code {"error": "..."}}.
 */
public final class GroupReplay {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final HexFormat HEX = HexFormat.of();
    private static final long LATEST = Long.MAX_VALUE;
    private static final short NO_PRODUCER = -1;

    public static void main(String[] arguments) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        try {
            return request.has("replay") ? replay(request.get("replay")) : partitions(request);
        } catch (RuntimeException error) {
            return NODES.objectNode().put("error", error.toString());
        }
    }

    private static ObjectNode partitions(JsonNode request) {
        ObjectNode answer = NODES.objectNode();
        ArrayNode partitions = answer.putArray("partitions");
        int count = request.get("count").intValue();
        request.get("partitions").forEach(group -> partitions.add(Utils.abs(group.textValue().hashCode()) % count));
        return answer;
    }

    private static ObjectNode replay(JsonNode records) {
        GroupCoordinatorShard shard = newShard();
        long offset = 0;
        for (JsonNode record : records) {
            shard.replay(offset++, NO_PRODUCER, NO_PRODUCER, read(record));
        }
        ObjectNode answer = NODES.objectNode();
        ObjectNode groups = answer.putObject("groups");
        for (ListedGroup group : shard.listGroups(List.of(), List.of(), LATEST)) {
            ObjectNode described = groups.putObject(group.groupId())
                .put("type", group.groupType())
                .put("state", group.groupState())
                .put("protocol_type", group.protocolType());
            describe(shard, group, described);
        }
        return answer;
    }

    private static CoordinatorRecord read(JsonNode record) {
        JsonNode value = record.get(1);
        return new GroupCoordinatorRecordSerde().deserialize(
            ByteBuffer.wrap(HEX.parseHex(record.get(0).textValue())),
            value.isNull() ? null : ByteBuffer.wrap(HEX.parseHex(value.textValue())));
    }

    private static void describe(GroupCoordinatorShard shard, ListedGroup group, ObjectNode described) {
        List<String> id = List.of(group.groupId());
        ArrayNode members = described.putArray("members");
        switch (group.groupType()) {
            case "classic" -> shard.describeGroups(null, id, LATEST).get(0).members().forEach(member ->
                add(members, member.memberId(), member.groupInstanceId(), member.clientId(), member.clientHost())
                    .put("subscription_bytes", member.memberMetadata())
                    .put("assignment_bytes", member.memberAssignment()));
            case "consumer" -> {
                var found = shard.consumerGroupDescribe(id, LATEST).get(0);
                described.put("epoch", found.groupEpoch()).put("assignment_epoch", found.assignmentEpoch());
                found.members().forEach(member -> {
                    ObjectNode one = add(
                        members, member.memberId(), member.instanceId(), member.clientId(), member.clientHost());
                    one.put("rack_id", member.rackId()).put("member_epoch", member.memberEpoch())
                        .put("is_classic", member.memberType() == 0)
                        .put("subscribed_regex", member.subscribedTopicRegex());
                    member.subscribedTopicNames().forEach(one.putArray("subscribed_topics")::add);
                });
            }
            case "share" -> {
                var found = shard.shareGroupDescribe(id, LATEST).get(0);
                described.put("epoch", found.groupEpoch()).put("assignment_epoch", found.assignmentEpoch());
                found.members().forEach(member -> {
                    ObjectNode one = add(members, member.memberId(), null, member.clientId(), member.clientHost());
                    one.put("rack_id", member.rackId()).put("member_epoch", member.memberEpoch());
                    member.subscribedTopicNames().forEach(one.putArray("subscribed_topics")::add);
                });
            }
            // A streams group without a topology, or with a member half replayed, cannot be described.
            default -> described.remove("members");
        }
    }

    private static ObjectNode add(ArrayNode members, String id, String instanceId, String clientId, String clientHost) {
        return members.addObject().put("member_id", id).put("group_instance_id", instanceId)
            .put("client_id", clientId).put("client_host", clientHost);
    }

    private static GroupCoordinatorShard newShard() {
        ConfigDef definitions = Utils.mergeConfigs(List.of(GroupCoordinatorConfig.CONFIG_DEF, ShareGroupConfig.CONFIG_DEF));
        AbstractConfig defaults = new AbstractConfig(definitions, Map.of(), false);
        GroupCoordinatorConfig config = new GroupCoordinatorConfig(defaults);
        var builder = new GroupCoordinatorShard.Builder(
            config, new GroupConfigManager(Map.of(), config, new ShareGroupConfig(defaults)));
        builder.withAuthorizerPlugin(Optional.empty());
        builder
            .withLogContext(new LogContext())
            .withSnapshotRegistry(new SnapshotRegistry(new LogContext()))
            .withTime(Time.SYSTEM)
            .withTimer(new NoTimer())
            .withExecutor(new NoExecutor())
            .withCoordinatorMetrics(new GroupCoordinatorMetrics(new com.yammer.metrics.core.MetricsRegistry(), new Metrics()))
            .withTopicPartition(new TopicPartition("__consumer_offsets", 0));
        return builder.build();
    }

    private static final class NoTimer implements CoordinatorTimer<CoordinatorRecord> {
        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry, TimeoutOperation<CoordinatorRecord> operation) {
        }

        @Override
        public void schedule(String key, long delay, TimeUnit unit, boolean retry, long retryBackoff,
                             TimeoutOperation<CoordinatorRecord> operation) {
        }

        @Override
        public void scheduleIfAbsent(String key, long delay, TimeUnit unit, boolean retry,
                                     TimeoutOperation<CoordinatorRecord> operation) {
        }

        @Override
        public void cancel(String key) {
        }

        @Override
        public boolean isScheduled(String key) {
            return false;
        }
    }

    private static final class NoExecutor implements CoordinatorExecutor<CoordinatorRecord> {
        @Override
        public <R> boolean schedule(String key, TaskRunnable<R> task, TaskOperation<CoordinatorRecord, R> operation) {
            return false;
        }

        @Override
        public boolean isScheduled(String key) {
            return false;
        }

        @Override
        public void cancel(String key) {
        }
    }
}
