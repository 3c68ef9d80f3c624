import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's own command kafka-consumer-groups, many times in one process: one JSON line in, one out. Its class, which is
 * not the same in all releases, is the first argument.
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

    /** Gives what is printed to another stream, which changes: Scala's programs take hold of the output once. */
    private static final class Switch extends OutputStream {
        OutputStream to = OutputStream.nullOutputStream();

        @Override
        public void write(int value) throws java.io.IOException {
            to.write(value);
        }

        @Override
        public void write(byte[] bytes, int start, int length) throws java.io.IOException {
            to.write(bytes, start, length);
        }
    }

    private static final Switch PRINTED = new Switch();

    public static void main(String[] named) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        var printing = new PrintStream(PRINTED, true, StandardCharsets.UTF_8);
        System.setOut(printing);
        System.setErr(printing);
        Exit.setExitProcedure((code, message) -> {
            throw new Exited(code);
        });
        Method command = Class.forName(named[0]).getMethod("main", String[].class);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(run(command, JSON.readTree(line).get("run")));
        }
        System.exit(0);
    }

    private static ObjectNode run(Method command, JsonNode given) throws IllegalAccessException {
        List<String> arguments = new ArrayList<>();
        given.forEach(argument -> arguments.add(argument.textValue()));
        var printed = new ByteArrayOutputStream();
        PRINTED.to = printed;
        int code = 0;
        try {
            command.invoke(null, (Object) arguments.toArray(String[]::new));
        } catch (InvocationTargetException ended) {
            if (!(ended.getCause() instanceof Exited exited)) {
                throw new IllegalStateException(ended.getCause());
            }
            code = exited.code;
        } finally {
            PRINTED.to = OutputStream.nullOutputStream();
        }
        ObjectNode answer = JsonNodeFactory.instance.objectNode();
        return answer.put("out", printed.toString(StandardCharsets.UTF_8)).put("code", code);
    }
}
