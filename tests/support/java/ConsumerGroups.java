import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.tools.consumer.group.ConsumerGroupCommand;

/**
 * Kafka's own command kafka-consumer-groups, many times in one process: one JSON line in, one out.
 *
 * <p>Requests: {@code {"run": [arguments]}}. Answers: {@code {"out": what it printed on both outputs, "code": exit code}}.
 * The end of the input ends the program.
 */
public final class ConsumerGroups {
    private static final ObjectMapper JSON = new ObjectMapper();

    private static final class Exited extends RuntimeException {
        final int code;

        Exited(int code) {
            this.code = code;
        }
    }

    private ConsumerGroups() {
    }

    public static void main(String[] ignored) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(run(JSON.readTree(line).get("run")));
        }
        System.exit(0);
    }

    private static ObjectNode run(JsonNode given) {
        List<String> arguments = new ArrayList<>();
        given.forEach(argument -> arguments.add(argument.textValue()));
        var printed = new ByteArrayOutputStream();
        var stream = new PrintStream(printed, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        int code = 0;
        System.setOut(stream);
        System.setErr(stream);
        try {
            ConsumerGroupCommand.main(arguments.toArray(String[]::new));
        } catch (Exited exited) {
            code = exited.code;
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        ObjectNode answer = JsonNodeFactory.instance.objectNode();
        return answer.put("out", printed.toString(StandardCharsets.UTF_8)).put("code", code);
    }
}
