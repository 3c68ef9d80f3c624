import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.ParameterizedType;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HexFormat;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.ConsumerProtocolAssignment;
import org.apache.kafka.common.message.ConsumerProtocolAssignmentJsonConverter;
import org.apache.kafka.common.message.ConsumerProtocolSubscription;
import org.apache.kafka.common.message.ConsumerProtocolSubscriptionJsonConverter;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.message.ResponseHeaderData;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.RawTaggedField;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.protocol.types.Type;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordType;

/**
 * Says how Kafka's own generated classes write and read the records of the offsets topic, requests and responses.
 *
 * <p>{@code generate SEED COUNT} prints COUNT random messages of every type and value version, and a tombstone of
 * every type. {@code protocol SEED COUNT KEY...} prints as many of every version of these APIs' requests and responses,
 * and of the headers. {@code read} reads such lines from standard input; what it prints for each is the last column
 * only.
 *
 * <p>A line: what it is (record, subscription, assignment, topics, or a message of the protocol and its version, say
 * {@code OffsetFetchRequest/9}), key in hex, value in hex, and the JSON of Kafka's converters or {@code !} and the class
 * of the exception; between them tabs. {@code -} is null. The key of a message of the protocol is null, or empty if it
 * has tagged fields that are unknown.
 *
 * <p>{@code headers KEY...} prints lines of API key, version, and the versions of its request and response header.
 */
public class MessageOracle {
    private static final HexFormat HEX = HexFormat.of();
    private static final int[] BORDER_SIZES = {126, 127, 128, 16382, 16383, 16384};
    private static final String[] CHARACTERS = {
        "a", "Z", "-", "\"", "\\", "\\u001f", "/", "\u0000", "\n", "\u001f", "\u007f", "é", "\u2028", "\uffff", "😀"
    };

    private final Random random;
    private boolean hasUnknownTags;

    private MessageOracle(long seed) {
        random = new Random(seed);
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        switch (arguments[0]) {
            case "generate" -> new MessageOracle(Long.parseLong(arguments[1])).generate(Integer.parseInt(arguments[2]), out);
            case "protocol" -> new MessageOracle(Long.parseLong(arguments[1]))
                .protocol(Integer.parseInt(arguments[2]), Arrays.copyOfRange(arguments, 3, arguments.length), out);
            case "headers" -> headers(Arrays.copyOfRange(arguments, 1, arguments.length), out);
            case "read" -> readLines(out);
            default -> throw new IllegalArgumentException(arguments[0]);
        }
        out.flush();
    }

    // --- reading ---------------------------------------------------------------------------------------------

    private static void readLines(PrintStream out) throws IOException {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] columns = line.split("\t", -1);
            out.println(outcome(columns[0], bytes(columns[1]), bytes(columns[2])));
        }
    }

    private static byte[] bytes(String hex) {
        return hex.equals("-") ? null : HEX.parseHex(hex);
    }

    private static String outcome(String kind, byte[] key, byte[] value) {
        try {
            return switch (kind) {
                case "record" -> record(key, value).toString();
                case "subscription" -> subscription(value).toString();
                case "assignment" -> assignment(value).toString();
                case "topics" -> subscribedTopics(value).toString();
                default -> protocolMessage(kind, value).toString();
            };
        } catch (RuntimeException | OutOfMemoryError error) {
            return "!" + error.getClass().getSimpleName();
        }
    }

    private static JsonNode record(byte[] key, byte[] value) {
        CoordinatorRecord record = new GroupCoordinatorRecordSerde().deserialize(buffer(key), buffer(value));
        ObjectNode document = new ObjectNode(JsonNodeFactory.instance);
        document.putObject("key")
            .put("type", record.key().apiKey())
            .set("data", CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()));
        if (record.value() == null) {
            document.putNull("value");
        } else {
            short version = record.value().version();
            document.putObject("value")
                .put("version", version)
                .set("data", CoordinatorRecordJsonConverters.writeRecordValueAsJson(record.value().message(), version));
        }
        return document;
    }

    private static ByteBuffer buffer(byte[] data) {
        return data == null ? null : ByteBuffer.wrap(data);
    }

    private static JsonNode subscription(byte[] value) {
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(value));
        short version = readable.readShort();
        short known = (short) Math.min(version, ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION);
        return versioned(version, ConsumerProtocolSubscriptionJsonConverter.write(
            new ConsumerProtocolSubscription(readable, known), known));
    }

    private static JsonNode assignment(byte[] value) {
        ByteBufferAccessor readable = new ByteBufferAccessor(ByteBuffer.wrap(value));
        short version = readable.readShort();
        short known = (short) Math.min(version, ConsumerProtocolAssignment.HIGHEST_SUPPORTED_VERSION);
        return versioned(version, ConsumerProtocolAssignmentJsonConverter.write(
            new ConsumerProtocolAssignment(readable, known), known));
    }

    /** As {@code ClassicGroup.computeSubscribedTopics} reads them. */
    private static JsonNode subscribedTopics(byte[] value) {
        ByteBuffer buffer = ByteBuffer.wrap(value);
        ConsumerProtocol.deserializeVersion(buffer);
        ArrayNode topics = new ArrayNode(JsonNodeFactory.instance);
        ConsumerProtocol.deserializeSubscription(buffer, (short) 0).topics().forEach(topics::add);
        return topics;
    }

    private static JsonNode versioned(short version, JsonNode data) {
        ObjectNode document = new ObjectNode(JsonNodeFactory.instance).put("version", version);
        document.set("data", data);
        return document;
    }

    private static JsonNode protocolMessage(String kind, byte[] value) {
        String name = kind.substring(0, kind.indexOf('/'));
        short version = Short.parseShort(kind.substring(name.length() + 1));
        try {
            Class<?> data = Class.forName("org.apache.kafka.common.message." + name + "Data");
            Message message = (Message) data.getDeclaredConstructor().newInstance();
            message.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), version);
            Class<?> converter = Class.forName(data.getName() + "JsonConverter");
            return (JsonNode) converter.getMethod("write", data, short.class).invoke(null, message, version);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static void headers(String[] apiKeys, PrintStream out) {
        for (String apiKey : apiKeys) {
            ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(apiKey));
            for (short version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(true); version++) {
                out.println(String.join("\t", apiKey, "" + version, "" + api.requestHeaderVersion(version),
                    "" + api.responseHeaderVersion(version)));
            }
        }
    }

    // --- making messages -------------------------------------------------------------------------------------

    private void generate(int count, PrintStream out) throws ReflectiveOperationException {
        for (CoordinatorRecordType type : CoordinatorRecordType.values()) {
            print("record", key(type), null, out);
            for (short version = type.lowestSupportedVersion(); version <= type.highestSupportedVersion(); version++) {
                for (int i = 0; i < count; i++) {
                    ApiMessage value = fill(type.newRecordValue(), version);
                    print("record", key(type), MessageUtil.toVersionPrefixedBytes(version, value), out);
                }
            }
        }
        for (short version = 0; version <= ConsumerProtocolSubscription.HIGHEST_SUPPORTED_VERSION; version++) {
            for (int i = 0; i < count; i++) {
                Message subscription = fill(new ConsumerProtocolSubscription(), version);
                print("subscription", null, MessageUtil.toVersionPrefixedBytes(version, subscription), out);
                Message assignment = fill(new ConsumerProtocolAssignment(), version);
                print("assignment", null, MessageUtil.toVersionPrefixedBytes(version, assignment), out);
            }
        }
    }

    private void protocol(int count, String[] apiKeys, PrintStream out) throws ReflectiveOperationException {
        for (String apiKey : apiKeys) {
            ApiMessageType api = ApiMessageType.fromApiKey(Short.parseShort(apiKey));
            for (short version = api.lowestSupportedVersion(); version <= api.highestSupportedVersion(true); version++) {
                for (int i = 0; i < count; i++) {
                    print(api.newRequest(), version, out);
                    print(api.newResponse(), version, out);
                }
            }
        }
        for (short version = 0; version <= 1; version++) {
            for (int i = 0; i < count; i++) {
                print(new RequestHeaderData(), (short) (version + 1), out);
                print(new ResponseHeaderData(), version, out);
            }
        }
    }

    private void print(Message message, short version, PrintStream out) throws ReflectiveOperationException {
        hasUnknownTags = false;
        fill(message, version);
        String name = message.getClass().getSimpleName().replaceFirst("Data$", "");
        ByteBuffer bytes = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] value = new byte[bytes.remaining()];
        bytes.get(value);
        print(name + "/" + version, hasUnknownTags ? new byte[0] : null, value, out);
    }

    private byte[] key(CoordinatorRecordType type) throws ReflectiveOperationException {
        return MessageUtil.toCoordinatorTypePrefixedBytes(fill(type.newRecordKey(), (short) 0));
    }

    private static void print(String kind, byte[] key, byte[] value, PrintStream out) {
        out.println(String.join("\t", kind, hex(key), hex(value), outcome(kind, key, value)));
    }

    private static String hex(byte[] data) {
        return data == null ? "-" : HEX.formatHex(data);
    }

    /** Random content for every field that the version has, as its schema has it; half of the tagged fields too. */
    private <T extends Message> T fill(T message, short version) throws ReflectiveOperationException {
        Schema[] schemas = (Schema[]) message.getClass().getField("SCHEMAS").get(null);
        for (BoundField field : schemas[version].fields()) {
            if (field.def.type instanceof TaggedFields tagged) {
                fillTagged(message, tagged, version);
            } else {
                set(message, field.def, version);
            }
        }
        return message;
    }

    private void fillTagged(Message message, TaggedFields tagged, short version) throws ReflectiveOperationException {
        for (Map.Entry<Integer, Field> field : tagged.fields().entrySet()) {
            if (random.nextBoolean()) {
                set(message, field.getValue(), version);
            }
        }
        if (random.nextInt(8) == 0) {
            byte[] content = new byte[random.nextInt(200)];
            hasUnknownTags = true;
            message.unknownTaggedFields().add(new RawTaggedField(100 + random.nextInt(20000), content));
        }
    }

    private void set(Message message, Field schema, short version) throws ReflectiveOperationException {
        java.lang.reflect.Field field = message.getClass().getDeclaredField(camelCase(schema.name));
        field.setAccessible(true);
        boolean isNull = schema.type.isNullable() && random.nextInt(4) == 0;
        field.set(message, isNull ? null : content(field.getGenericType(), schema.type, field.get(message), version));
    }

    private static String camelCase(String snakeCase) {
        StringBuilder name = new StringBuilder();
        for (String word : snakeCase.split("_")) {
            name.append(name.isEmpty() ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        }
        return name.toString();
    }

    @SuppressWarnings("unchecked")
    private Object content(java.lang.reflect.Type type, Type schema, Object present, short version)
            throws ReflectiveOperationException {
        if (type == short.class || type == Short.class) {
            return (short) number();
        } else if (type == boolean.class) {
            return random.nextBoolean();
        } else if (type == byte.class) {
            return (byte) number();
        } else if (type == int.class || type == Integer.class) {
            return schema == Type.UINT16 ? (int) number() & 0xffff : (int) number();
        } else if (type == long.class) {
            return number();
        } else if (type == String.class) {
            return text();
        } else if (type == byte[].class) {
            return blob();
        } else if (type == ByteBuffer.class) {
            return ByteBuffer.wrap(blob());
        } else if (type == Uuid.class) {
            return random.nextInt(4) == 0 ? Uuid.ZERO_UUID : new Uuid(random.nextLong(), random.nextLong());
        } else if (type instanceof ParameterizedType list) {
            return elements(new ArrayList<>(), list.getActualTypeArguments()[0], schema, version);
        } else if (present instanceof Collection<?> collection) { // a generated collection class
            java.lang.reflect.Type element = elementOf(collection.getClass());
            return elements((Collection<Object>) collection, element, schema, version);
        }
        return fill((Message) ((Class<?>) type).getDeclaredConstructor().newInstance(), version);
    }

    private static java.lang.reflect.Type elementOf(Class<?> collection) {
        return ((ParameterizedType) collection.getGenericSuperclass()).getActualTypeArguments()[0];
    }

    private Object elements(
            Collection<Object> elements, java.lang.reflect.Type type, Type schema, short version)
            throws ReflectiveOperationException {
        Type element = schema.arrayElementType().orElse(schema);
        int size = random.nextInt(40) == 0 && type == Integer.class ? borderSize() : random.nextInt(4);
        for (int i = 0; i < size; i++) {
            elements.add(content(type, element, null, version));
        }
        return elements;
    }

    /** Small numbers, -1 and 0 among them, as often as large ones. */
    private long number() {
        return random.nextBoolean() ? random.nextInt(4) - 1 : random.nextLong();
    }

    private String text() {
        if (random.nextInt(60) == 0) {
            return "x".repeat(borderSize());
        }
        StringBuilder text = new StringBuilder();
        for (int i = random.nextInt(6); i > 0; i--) {
            text.append(CHARACTERS[random.nextInt(CHARACTERS.length)]);
        }
        return text.toString();
    }

    private byte[] blob() {
        byte[] blob = new byte[random.nextInt(20) == 0 ? borderSize() : random.nextInt(6)];
        random.nextBytes(blob);
        return blob;
    }

    private int borderSize() {
        return BORDER_SIZES[random.nextInt(BORDER_SIZES.length)];
    }
}
