import java.io.BufferedReader;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.Socket;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ApiVersionsRequestData;
import org.apache.kafka.common.message.ApiVersionsResponseData;
import org.apache.kafka.common.message.ConsumerGroupDescribeRequestData;
import org.apache.kafka.common.message.ConsumerGroupDescribeResponseData;
import org.apache.kafka.common.message.DescribeGroupsRequestData;
import org.apache.kafka.common.message.DescribeGroupsResponseData;
import org.apache.kafka.common.message.JoinGroupRequestData;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.message.JoinGroupResponseData;
import org.apache.kafka.common.message.LeaveGroupRequestData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.message.ShareGroupDescribeRequestData;
import org.apache.kafka.common.message.ShareGroupDescribeResponseData;
import org.apache.kafka.common.message.StreamsGroupDescribeRequestData;
import org.apache.kafka.common.message.StreamsGroupDescribeResponseData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Subtopology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.TaskIds;
import org.apache.kafka.common.message.StreamsGroupHeartbeatRequestData.Topology;
import org.apache.kafka.common.message.StreamsGroupHeartbeatResponseData;
import org.apache.kafka.common.message.SyncGroupRequestData;
import org.apache.kafka.common.message.SyncGroupRequestData.SyncGroupRequestAssignment;
import org.apache.kafka.common.message.SyncGroupResponseData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of every type of group on a real broker, and what that broker says about groups: one JSON line in, one out.
 *
 * <p>The argument is the broker's host:port. Requests: {@code {"join": {"name", "kind", "group", "topics" or "regex",
 * "config"}}} starts a member of the kind classic, consumer, share, streams or raw (a classic member of the protocol type
 * "connect", by plain requests); {@code {"leave": name}} lets it leave; {@code {"delete": [groups]}};
 * {@code {"groups": {}}} lists and describes all groups. An exception is answered as {@code {"error": "..."}}. The end of
 * the input lets all members leave and ends the program.
 */
public final class GroupActors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(100);
    private static final int TIMEOUT_MS = 15_000;

    private final String bootstrap;
    private final Admin admin;
    private final Map<String, Actor> actors = new HashMap<>();
    private final Map<Short, Short> latestVersions = new HashMap<>();

    private GroupActors(String bootstrap) throws IOException {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of(
            "bootstrap.servers", bootstrap, "request.timeout.ms", TIMEOUT_MS, "default.api.timeout.ms", TIMEOUT_MS));
        var known = (ApiVersionsResponseData) ask(ApiKeys.API_VERSIONS, new ApiVersionsRequestData(), (short) 0);
        known.apiKeys().forEach(api -> latestVersions.put(api.apiKey(), api.maxVersion()));
    }

    public static void main(String[] arguments) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var here = new GroupActors(arguments[0]);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(here.answer(JSON.readTree(line)));
        }
        for (Actor actor : here.actors.values()) {
            actor.leave();
        }
        here.admin.close(Duration.ofSeconds(1));
        System.exit(0);
    }

    private ObjectNode answer(JsonNode request) {
        ObjectNode answer = JsonNodeFactory.instance.objectNode();
        try {
            if (request.has("join")) {
                join(request.get("join"));
            } else if (request.has("leave")) {
                actors.remove(request.get("leave").textValue()).leave();
            } else if (request.has("delete")) {
                List<String> groups = texts(request.get("delete"));
                admin.deleteConsumerGroups(groups).all().get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
            } else {
                describeAll(answer.putObject("groups"));
            }
        } catch (Exception error) {
            answer.put("error", error.toString());
        }
        return answer;
    }

    private static List<String> texts(JsonNode array) {
        List<String> texts = new ArrayList<>();
        array.forEach(text -> texts.add(text.textValue()));
        return texts;
    }

    // --- members

    private void join(JsonNode wish) throws Exception {
        String group = wish.get("group").textValue();
        Member member = switch (wish.get("kind").textValue()) {
            case "classic", "consumer" -> new ConsumerMember(wish, settings(wish));
            case "share" -> new ShareMember(wish, settings(wish));
            case "streams" -> new StreamsMember(group, texts(wish.get("topics")));
            default -> new RawMember(group);
        };
        actors.put(wish.get("name").textValue(), new Actor(member));
    }

    private Map<String, Object> settings(JsonNode wish) {
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", bootstrap,
            "group.id", wish.get("group").textValue(),
            "client.id", wish.get("name").textValue()));
        if (!wish.get("kind").textValue().equals("share")) {
            settings.put("group.protocol", wish.get("kind").textValue());
            settings.put("enable.auto.commit", "false");
        }
        wish.path("config").properties().forEach(entry -> settings.put(entry.getKey(), entry.getValue().textValue()));
        return settings;
    }

    private interface Member {
        void step() throws Exception;

        void leave() throws Exception;
    }

    /** Runs a member in a thread of its own: clients may be used by one thread only. */
    private static final class Actor {
        private final CompletableFuture<Void> ended = new CompletableFuture<>();
        private volatile boolean stays = true;

        Actor(Member member) {
            Thread thread = new Thread(() -> run(member));
            thread.setDaemon(true);
            thread.start();
        }

        private void run(Member member) {
            try {
                while (stays) {
                    member.step();
                }
                member.leave();
                ended.complete(null);
            } catch (Throwable error) {
                ended.completeExceptionally(error);
            }
        }

        void leave() throws Exception {
            stays = false;
            ended.get(TIMEOUT_MS, TimeUnit.MILLISECONDS);
        }
    }

    private static final class ConsumerMember implements Member {
        private final KafkaConsumer<byte[], byte[]> consumer;

        ConsumerMember(JsonNode wish, Map<String, Object> settings) {
            consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            if (wish.has("regex")) {
                consumer.subscribe(new SubscriptionPattern(wish.get("regex").textValue()));
            } else {
                consumer.subscribe(texts(wish.get("topics")));
            }
        }

        @Override
        public void step() {
            consumer.poll(POLL);
        }

        @Override
        public void leave() {
            consumer.close();
        }
    }

    private static final class ShareMember implements Member {
        private final KafkaShareConsumer<byte[], byte[]> consumer;

        ShareMember(JsonNode wish, Map<String, Object> settings) {
            consumer = new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
            consumer.subscribe(texts(wish.get("topics")));
        }

        @Override
        public void step() {
            consumer.poll(POLL);
        }

        @Override
        public void leave() {
            consumer.close();
        }
    }

    /** A streams client without streams: it has the tasks that it is given (KIP-1071). */
    private final class StreamsMember implements Member {
        private final StreamsGroupHeartbeatRequestData next;

        StreamsMember(String group, List<String> topics) {
            var subtopology = new Subtopology().setSubtopologyId("0").setSourceTopics(topics);
            next = new StreamsGroupHeartbeatRequestData()
                .setGroupId(group)
                .setMemberId(Uuid.randomUuid().toString())
                .setMemberEpoch(0)
                .setRebalanceTimeoutMs(TIMEOUT_MS)
                .setProcessId("process")
                .setClientTags(List.of())
                .setActiveTasks(List.of())
                .setStandbyTasks(List.of())
                .setWarmupTasks(List.of())
                .setTopology(new Topology().setEpoch(0).setSubtopologies(List.of(subtopology)));
        }

        @Override
        public void step() throws Exception {
            var answer = (StreamsGroupHeartbeatResponseData) ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, next);
            check(answer.errorCode(), answer.errorMessage());
            next.setMemberEpoch(answer.memberEpoch()).setTopology(null);
            if (answer.activeTasks() != null) {
                next.setActiveTasks(answer.activeTasks().stream()
                    .map(tasks -> new TaskIds().setSubtopologyId(tasks.subtopologyId()).setPartitions(tasks.partitions()))
                    .toList());
            }
            Thread.sleep(POLL.toMillis());
        }

        @Override
        public void leave() throws Exception {
            var answer = (StreamsGroupHeartbeatResponseData) ask(ApiKeys.STREAMS_GROUP_HEARTBEAT, next.setMemberEpoch(-1));
            check(answer.errorCode(), answer.errorMessage());
        }
    }

    /** A classic member of another protocol type, as a Kafka Connect worker is. */
    private final class RawMember implements Member {
        private final String group;
        private final String memberId;

        RawMember(String group) throws Exception {
            this.group = group;
            var protocols = new JoinGroupRequestProtocolCollection();
            protocols.add(new JoinGroupRequestProtocol().setName("sessioned").setMetadata(new byte[] {1, 2, 3}));
            var wish = new JoinGroupRequestData().setGroupId(group).setProtocolType("connect").setProtocols(protocols)
                .setSessionTimeoutMs(300_000).setRebalanceTimeoutMs(30_000).setMemberId("");
            var asked = (JoinGroupResponseData) ask(ApiKeys.JOIN_GROUP, wish);
            if (asked.errorCode() == Errors.MEMBER_ID_REQUIRED.code()) {
                asked = (JoinGroupResponseData) ask(ApiKeys.JOIN_GROUP, wish.setMemberId(asked.memberId()));
            }
            check(asked.errorCode(), "JoinGroup");
            memberId = asked.memberId();
            var assignment = new SyncGroupRequestAssignment().setMemberId(memberId).setAssignment(new byte[] {4});
            var synced = (SyncGroupResponseData) ask(ApiKeys.SYNC_GROUP, new SyncGroupRequestData()
                .setGroupId(group).setGenerationId(asked.generationId()).setMemberId(memberId)
                .setProtocolType("connect").setProtocolName("sessioned").setAssignments(List.of(assignment)));
            check(synced.errorCode(), "SyncGroup");
        }

        @Override
        public void step() throws Exception {
            Thread.sleep(POLL.toMillis());
        }

        @Override
        public void leave() throws Exception {
            ask(ApiKeys.LEAVE_GROUP, new LeaveGroupRequestData().setGroupId(group).setMembers(
                List.of(new LeaveGroupRequestData.MemberIdentity().setMemberId(memberId))));
        }
    }

    // --- what the broker says

    private void describeAll(ObjectNode groups) throws Exception {
        for (GroupListing listing : admin.listGroups().all().get(TIMEOUT_MS, TimeUnit.MILLISECONDS)) {
            ObjectNode group = groups.putObject(listing.groupId())
                .put("type", listing.type().orElseThrow().toString().toLowerCase())
                .put("state", listing.groupState().orElseThrow().toString())
                .put("protocol_type", listing.protocol());
            switch (listing.type().orElseThrow()) {
                case CLASSIC -> describeClassic(listing.groupId(), group);
                case CONSUMER -> describeConsumer(listing.groupId(), group);
                case SHARE -> describeShare(listing.groupId(), group);
                case STREAMS -> describeStreams(listing.groupId(), group);
                default -> throw new IllegalStateException("a group of type " + listing.type());
            }
        }
    }

    private void describeClassic(String name, ObjectNode group) throws Exception {
        var found = ((DescribeGroupsResponseData) ask(ApiKeys.DESCRIBE_GROUPS,
            new DescribeGroupsRequestData().setGroups(List.of(name)))).groups().get(0);
        group.put("described_state", found.groupState());
        group.put("protocol", found.protocolData().isEmpty() ? null : found.protocolData());
        ArrayNode members = group.putArray("members");
        var topics = new TreeSet<String>();
        boolean isStable = found.groupState().equals("Stable");
        boolean tellsTopics = found.protocolType().equals("consumer") && List.of("Stable", "Empty").contains(found.groupState());
        found.members().forEach(member -> {
            ObjectNode one = add(
                members, member.memberId(), member.groupInstanceId(), member.clientId(), member.clientHost());
            one.put("subscription_bytes", member.memberMetadata()).put("assignment_bytes", member.memberAssignment());
            if (tellsTopics && isStable) {
                var assigned = ConsumerProtocol.deserializeAssignment(ByteBuffer.wrap(member.memberAssignment()));
                var byTopic = new TreeMap<String, List<Integer>>();
                assigned.partitions().forEach(
                    each -> byTopic.computeIfAbsent(each.topic(), topic -> new ArrayList<>()).add(each.partition()));
                ArrayNode assignment = one.putArray("assignment");
                byTopic.forEach((topic, partitions) -> {
                    ArrayNode numbers = assignment.addObject().put("topic", topic).putArray("partitions");
                    partitions.forEach(numbers::add);
                });
            }
            if (tellsTopics) {
                topics.addAll(ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(member.memberMetadata())).topics());
            }
        });
        if (tellsTopics) {
            putTopics(group, topics);
        }
    }

    private void describeConsumer(String name, ObjectNode group) throws Exception {
        var found = ((ConsumerGroupDescribeResponseData) ask(ApiKeys.CONSUMER_GROUP_DESCRIBE,
            new ConsumerGroupDescribeRequestData().setGroupIds(List.of(name)))).groups().get(0);
        group.put("described_state", found.groupState()).put("epoch", found.groupEpoch()).put("assignor", found.assignorName())
            .put("assignment_epoch", found.assignmentEpoch());
        ArrayNode members = group.putArray("members");
        var topics = new TreeSet<String>();
        found.members().forEach(member -> {
            ObjectNode one = add(members, member.memberId(), member.instanceId(), member.clientId(), member.clientHost());
            one.put("rack_id", member.rackId()).put("member_epoch", member.memberEpoch())
                .put("subscribed_regex", member.subscribedTopicRegex());
            if (latestVersions.get(ApiKeys.CONSUMER_GROUP_DESCRIBE.id) > 0) {
                one.put("is_classic", member.memberType() == 0);
            }
            new TreeSet<>(member.subscribedTopicNames()).forEach(one.putArray("subscribed_topics")::add);
            ArrayNode assignment = one.putArray("assignment");
            member.assignment().topicPartitions().forEach(topic ->
                putTopic(assignment, topic.topicName(), topic.topicId(), topic.partitions()));
            ArrayNode target = one.putArray("target_assignment");
            member.targetAssignment().topicPartitions().forEach(topic ->
                putTopic(target, topic.topicName(), topic.topicId(), topic.partitions()));
            topics.addAll(member.subscribedTopicNames());
            // What an expression was resolved to is only told by what is assigned.
            member.targetAssignment().topicPartitions().forEach(topic -> topics.add(topic.topicName()));
        });
        putTopics(group, topics);
    }

    private void describeShare(String name, ObjectNode group) throws Exception {
        var found = ((ShareGroupDescribeResponseData) ask(ApiKeys.SHARE_GROUP_DESCRIBE,
            new ShareGroupDescribeRequestData().setGroupIds(List.of(name)))).groups().get(0);
        group.put("described_state", found.groupState()).put("epoch", found.groupEpoch())
            .put("assignment_epoch", found.assignmentEpoch());
        ArrayNode members = group.putArray("members");
        var topics = new TreeSet<String>();
        found.members().forEach(member -> {
            ObjectNode one = add(members, member.memberId(), null, member.clientId(), member.clientHost());
            one.put("rack_id", member.rackId()).put("member_epoch", member.memberEpoch());
            new TreeSet<>(member.subscribedTopicNames()).forEach(one.putArray("subscribed_topics")::add);
            ArrayNode assignment = one.putArray("assignment");
            member.assignment().topicPartitions().forEach(topic ->
                putTopic(assignment, topic.topicName(), topic.topicId(), topic.partitions()));
            topics.addAll(member.subscribedTopicNames());
        });
        putTopics(group, topics);
    }

    private void describeStreams(String name, ObjectNode group) throws Exception {
        var found = ((StreamsGroupDescribeResponseData) ask(ApiKeys.STREAMS_GROUP_DESCRIBE,
            new StreamsGroupDescribeRequestData().setGroupIds(List.of(name)))).groups().get(0);
        group.put("described_state", found.groupState()).put("epoch", found.groupEpoch())
            .put("assignment_epoch", found.assignmentEpoch());
        ArrayNode members = group.putArray("members");
        found.members().forEach(member -> {
            ObjectNode one = add(members, member.memberId(), member.instanceId(), member.clientId(), member.clientHost());
            one.put("rack_id", member.rackId()).put("member_epoch", member.memberEpoch());
            putTasks(one.putArray("assignment"), member.assignment());
            putTasks(one.putArray("target_assignment"), member.targetAssignment());
        });
        var topics = new TreeSet<String>();
        found.topology().subtopologies().forEach(subtopology -> topics.addAll(subtopology.sourceTopics()));
        if (!found.members().isEmpty()) {
            putTopics(group, topics);
        }
    }

    private static void putTopic(ArrayNode assignment, String name, Uuid id, List<Integer> partitions) {
        ArrayNode numbers = assignment.addObject().put("topic", name).put("topic_id", id.toString())
            .putArray("partitions");
        partitions.forEach(numbers::add);
    }

    private static void putTasks(ArrayNode assignment, StreamsGroupDescribeResponseData.Assignment tasks) {
        Map.of("active", tasks.activeTasks(), "standby", tasks.standbyTasks(), "warmup", tasks.warmupTasks()).forEach(
            (type, ofType) -> ofType.forEach(each -> {
                ArrayNode numbers = assignment.addObject().put("subtopology", each.subtopologyId())
                    .put("task_type", type).putArray("partitions");
                each.partitions().forEach(numbers::add);
            }));
    }

    private static ObjectNode add(ArrayNode members, String id, String instanceId, String clientId, String clientHost) {
        return members.addObject().put("member_id", id).put("group_instance_id", instanceId)
            .put("client_id", clientId).put("client_host", clientHost);
    }

    private static void putTopics(ObjectNode group, TreeSet<String> topics) {
        ArrayNode names = group.putArray("subscribed_topics");
        topics.forEach(names::add);
    }

    // --- plain requests

    private static void check(short errorCode, String what) {
        if (errorCode != 0) {
            throw new IllegalStateException(Errors.forCode(errorCode) + ": " + what);
        }
    }

    private ApiMessage ask(ApiKeys api, ApiMessage request) throws IOException {
        // the latest version that both this client and the broker know
        return ask(api, request, (short) Math.min(api.latestVersion(), latestVersions.get(api.id)));
    }

    private ApiMessage ask(ApiKeys api, ApiMessage request, short version) throws IOException {
        var header = new RequestHeaderData().setRequestApiKey(api.id).setRequestApiVersion(version)
            .setCorrelationId(1).setClientId("actor");
        byte[] head = bytes(header, api.requestHeaderVersion(version));
        byte[] body = bytes(request, version);
        String[] address = bootstrap.split(":");
        try (Socket socket = new Socket(address[0], Integer.parseInt(address[1]))) {
            socket.setSoTimeout(TIMEOUT_MS);
            var output = new DataOutputStream(socket.getOutputStream());
            output.writeInt(head.length + body.length);
            output.write(head);
            output.write(body);
            output.flush();
            var input = new DataInputStream(socket.getInputStream());
            var answer = new ByteBufferAccessor(ByteBuffer.wrap(input.readNBytes(input.readInt())));
            new ResponseHeaderData(answer, api.responseHeaderVersion(version));
            ApiMessage response = ApiMessageType.fromApiKey(api.id).newResponse();
            response.read(answer, version);
            return response;
        }
    }

    private static byte[] bytes(ApiMessage message, short version) {
        return MessageUtil.byteBufferToArray(MessageUtil.toByteBufferAccessor(message, version).buffer());
    }
}
