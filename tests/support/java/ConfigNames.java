import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;

/** Prints the names of all settings of Kafka's own clients. */
public final class ConfigNames {
    private ConfigNames() {
    }

    public static void main(String[] arguments) {
        Set<String> names = new TreeSet<>(ConsumerConfig.configNames());
        names.addAll(ProducerConfig.configNames());
        names.addAll(AdminClientConfig.configNames());
        names.forEach(System.out::println);
    }
}
