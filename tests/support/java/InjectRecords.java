import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HexFormat;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.server.common.ApiMessageAndVersion;

/**
 * Encodes and decodes group coordinator records with Kafka's own generated classes: one JSON line in, one out.
 *
 *   {"encode": {"type": 1, "key": {...}, "version": 3, "value": {...} or null}}
 *   {"decode": {"key": "hex", "value": "hex" or null}}
 *
 * Both answer {"key": "hex", "value": "hex" or null, "fields": the document that Kafka's message formatter
 * prints}, or {"error": "what Kafka's classes said"}. Run it as a single source file: java -cp "jars/*" InjectRecords.java
 */
public final class InjectRecords {
    private static final short LEGACY_OFFSET_COMMIT = 0;
    private static final short OFFSET_COMMIT = 1;
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.instance;
    private static final HexFormat HEX = HexFormat.of();

    public static void main(String[] arguments) throws IOException {
        var requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        var answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(answer(JSON.readTree(line)));
        }
    }

    private static ObjectNode answer(JsonNode request) {
        try {
            return request.has("encode") ? encode(request.get("encode")) : decode(request.get("decode"));
        } catch (RuntimeException error) {
            return NODES.objectNode().put("error", error.toString());
        }
    }

    private static ObjectNode encode(JsonNode record) {
        short type = record.get("type").shortValue();
        ApiMessage key = CoordinatorRecordJsonConverters.readRecordKeyFromJson(record.get("key"), type);
        ApiMessageAndVersion value = null;
        if (!record.get("value").isNull()) {
            // Under key 0 brokers up to 4.0 wrote and read every version; the generated class of type 0 has only v0.
            short valueType = type == LEGACY_OFFSET_COMMIT ? OFFSET_COMMIT : type;
            short version = record.get("version").shortValue();
            value = new ApiMessageAndVersion(
                CoordinatorRecordJsonConverters.readRecordValueFromJson(record.get("value"), valueType, version), version);
        }
        return described(key, value);
    }

    private static ObjectNode decode(JsonNode bytes) {
        CoordinatorRecord record = new GroupCoordinatorRecordSerde().deserialize(
            ByteBuffer.wrap(HEX.parseHex(bytes.get("key").textValue())),
            bytes.get("value").isNull() ? null : ByteBuffer.wrap(HEX.parseHex(bytes.get("value").textValue())));
        return described(record.key(), record.value());
    }

    private static ObjectNode described(ApiMessage key, ApiMessageAndVersion value) {
        ObjectNode answer = NODES.objectNode();
        answer.put("key", HEX.formatHex(MessageUtil.toCoordinatorTypePrefixedBytes(key)));
        answer.put("value", value == null
            ? null : HEX.formatHex(MessageUtil.toVersionPrefixedBytes(value.version(), value.message())));
        ObjectNode fields = answer.putObject("fields");
        fields.putObject("key").put("type", key.apiKey())
            .set("data", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(key));
        if (value == null) {
            fields.putNull("value");
        } else {
            fields.putObject("value").put("version", value.version())
                .set("data", CoordinatorRecordJsonConverters.writeRecordValueAsJson(value.message(), value.version()));
        }
        return answer;
    }
}
