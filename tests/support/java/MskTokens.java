import java.io.Reader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import javax.security.auth.callback.Callback;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.security.JaasContext;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerTokenCallback;

/**
 * Prints, for each file, a token that Kafka's Java client would get, or `error: ` and why there is none.
 *
 * A file has system properties (`system.NAME`) and settings of the client (`kafka.NAME`).
 */
public final class MskTokens {
    private static final String HANDLER = "sasl.login.callback.handler.class";

    private MskTokens() {
    }

    public static void main(String[] files) throws Exception {
        Properties before = new Properties();
        before.putAll(System.getProperties());
        for (String file : files) {
            Map<String, String> settings = new HashMap<>();
            Properties properties = new Properties();
            properties.putAll(before);
            Properties given = new Properties();
            try (Reader reader = Files.newBufferedReader(Path.of(file), StandardCharsets.UTF_8)) {
                given.load(reader);
            }
            for (String name : given.stringPropertyNames()) {
                if (name.startsWith("system.")) {
                    properties.put(name.substring("system.".length()), given.getProperty(name));
                } else {
                    settings.put(name.substring("kafka.".length()), given.getProperty(name));
                }
            }
            System.setProperties(properties);
            try {
                System.out.println(token(settings));
            } catch (RuntimeException error) {
                System.out.println("error: " + error.toString().replaceAll("\\s+", " "));
            }
        }
        System.out.flush();
        System.exit(0); // AWS's library may have threads that renew credentials
    }

    private static String token(Map<String, String> settings) throws Exception {
        Map<String, Object> parsed = new HashMap<>(settings);
        parsed.put("sasl.jaas.config", new Password(settings.get("sasl.jaas.config")));
        AuthenticateCallbackHandler handler = (AuthenticateCallbackHandler)
            Class.forName(settings.get(HANDLER)).getDeclaredConstructor().newInstance();
        OAuthBearerTokenCallback asked = new OAuthBearerTokenCallback();
        handler.configure(parsed, settings.get("sasl.mechanism"),
            JaasContext.loadClientContext(parsed).configurationEntries());
        handler.handle(new Callback[] {asked});
        return asked.token().value();
    }
}
