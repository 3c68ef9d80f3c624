import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.tools.OffsetsUtils;
import org.apache.kafka.tools.OffsetsUtils.OffsetsUtilsOptions;

/**
 * What kafka-consumer-groups --reset-offsets --from-file reads out of a file, by its own class: one JSON line in, one out.
 *
 * <p>Requests: {@code {"file": path, "groups": [those of --group]}}. Answers: {@code {"plan": [[group, topic, partition,
 * offset]]}} or {@code {"error": text}}. The end of the input ends the program.
 */
public final class ResetPlan {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ResetPlan() {
    }

    public static void main(String[] arguments) throws Exception {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        var answer = JsonNodeFactory.instance.objectNode();
        List<String> groups = new ArrayList<>();
        request.get("groups").forEach(group -> groups.add(group.textValue()));
        List<String> files = List.of(request.get("file").textValue());
        var options = new OffsetsUtilsOptions(groups, null, files, null, null, null, 0);
        try {
            var plan = answer.putArray("plan");
            new OffsetsUtils(null, null, options).resetPlanFromFile().orElseThrow().forEach((group, offsets) ->
                offsets.forEach((at, offset) ->
                    plan.addArray().add(group).add(at.topic()).add(at.partition()).add(offset.offset())));
        } catch (RuntimeException error) {
            answer.removeAll();
            answer.put("error", error.toString());
        }
        return answer;
    }
}
