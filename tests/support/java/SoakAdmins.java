import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.stream.LongStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListConsumerGroupOffsetsSpec;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupAuthorizationException;

/** Asks with many Admin clients at once, as {@code asker.py} describes. */
public final class SoakAdmins {
    private static final List<String> NAMED = List.of("offsetlake.read.until", "offsetlake.log.ends.sampled.at");
    private static final ConfigResource BROKER = new ConfigResource(ConfigResource.Type.BROKER, "1");

    public static void main(String[] arguments) throws Exception {
        Map<String, BlockingQueue<List<String>>> tasks = new ConcurrentHashMap<>();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            List<String> words = Arrays.asList(line.split(" "));
            String number = words.get(0);
            if (words.get(1).equals("open")) {
                tasks.put(number, new LinkedBlockingQueue<>());
                Thread thread = new Thread(() -> work(number, tasks.get(number)));
                thread.setDaemon(true);
                thread.start();
            }
            tasks.get(number).put(words.subList(1, words.size()));
        }
        System.exit(0);
    }

    private static void work(String number, BlockingQueue<List<String>> tasks) {
        Admin admin = null;
        while (true) {
            String line;
            try {
                List<String> words = tasks.take();
                if (words.get(0).equals("close")) {
                    if (admin != null) admin.close();
                    return;
                }
                admin = admin == null ? Admin.create(settings(words)) : admin;
                List<String> names = words.subList(1, words.size());
                List<String> shown = switch (words.get(0)) {
                    case "offsets" -> offsets(admin, names);
                    case "members" -> members(admin, names);
                    case "groups" -> groups(admin);
                    case "ends" -> ends(admin, names);
                    default -> List.of();
                };
                var configs = admin.describeConfigs(List.of(BROKER)).all().get().get(BROKER);
                List<String> said = new ArrayList<>();
                for (String name : NAMED) {
                    String value = configs.get(name).value();
                    said.add(value == null || value.isEmpty() ? "-" : value);
                }
                said.addAll(shown);
                line = String.join(" ", said);
            } catch (Exception error) {
                line = "error " + (error.getCause() == null ? error : error.getCause()).toString().replace("\n", " ");
            }
            System.out.println(number + " " + line);
        }
    }

    private static Map<String, Object> settings(List<String> words) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", words.get(1)));
        if (words.size() > 2) {
            settings.putAll(Map.of(
                "security.protocol", "SASL_SSL",
                "ssl.truststore.type", "PEM",
                "ssl.truststore.location", words.get(2),
                "sasl.mechanism", "SCRAM-SHA-256",
                "sasl.jaas.config", "org.apache.kafka.common.security.scram.ScramLoginModule required username=\""
                    + words.get(3) + "\" password=\"" + words.get(4) + "\";"));
        }
        return settings;
    }

    private static List<String> offsets(Admin admin, List<String> groups) throws Exception {
        Map<String, ListConsumerGroupOffsetsSpec> asked = new HashMap<>();
        groups.forEach(group -> asked.put(group, new ListConsumerGroupOffsetsSpec()));
        var answers = admin.listConsumerGroupOffsets(asked);
        List<String> said = new ArrayList<>();
        for (String group : groups) {
            try {
                said.add(summary(group, answers.partitionsToOffsetAndMetadata(group).get().values().stream()
                    .map(one -> one.offset()).toList()));
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof GroupAuthorizationException)) throw error;
                said.add(group + "=denied");
            }
        }
        return said;
    }

    private static List<String> members(Admin admin, List<String> groups) throws Exception {
        List<String> said = new ArrayList<>();
        admin.describeConsumerGroups(groups).all().get().forEach((name, group) -> said.add(summary(name,
            group.members().stream().map(one -> Long.parseLong(one.consumerId().substring(2))).toList())));
        return said;
    }

    private static List<String> groups(Admin admin) throws Exception {
        List<Long> added = new ArrayList<>();
        var listed = admin.listGroups().all().get();
        listed.stream().map(one -> one.groupId()).filter(name -> name.startsWith("new-"))
            .forEach(name -> added.add(Long.parseLong(name.substring(4))));
        return List.of("groups=" + (listed.size() - added.size()) + ":0:0", summary("new", added));
    }

    private static List<String> ends(Admin admin, List<String> topics) throws Exception {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (String topic : topics) {
            for (int partition = 0; partition < 10; partition++) {
                asked.put(new TopicPartition(topic, partition), OffsetSpec.latest());
            }
        }
        var answers = admin.listOffsets(asked).all().get();
        List<String> said = new ArrayList<>();
        for (String topic : topics) {
            said.add(summary(topic, answers.entrySet().stream().filter(one -> one.getKey().topic().equals(topic))
                .map(one -> one.getValue().offset()).toList()));
        }
        return said;
    }

    private static String summary(String name, Collection<Long> numbers) {
        LongStream.Builder all = LongStream.builder();
        numbers.forEach(all::add);
        var found = all.build().summaryStatistics();
        boolean isEmpty = found.getCount() == 0;
        return name + "=" + found.getCount() + ":" + (isEmpty ? 0 : found.getMin()) + ":" + (isEmpty ? 0 : found.getMax());
    }
}
