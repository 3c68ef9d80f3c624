import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.LocalDateTime;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import javax.security.auth.callback.Callback;
import javax.security.auth.callback.UnsupportedCallbackException;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerExtensionsValidatorCallback;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerToken;
import org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallback;

/**
 * Accepts tokens of the form of Amazon MSK in a broker until they expire, and appends each to a file.
 *
 * It checks no signature: the tests do. The file is the option `tokens` of the listener's JAAS entry. While there
 * is a file `refuse` beside it, every token is refused.
 */
public final class TokenRecorder implements AuthenticateCallbackHandler {
    private static final DateTimeFormatter DATE = DateTimeFormatter.ofPattern("yyyyMMdd'T'HHmmss'Z'");
    private Path tokens;

    @Override
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {
        tokens = Path.of((String) entries.get(0).getOptions().get("tokens"));
    }

    @Override
    public void close() {
    }

    @Override
    public void handle(Callback[] callbacks) throws IOException, UnsupportedCallbackException {
        for (Callback callback : callbacks) {
            if (callback instanceof OAuthBearerValidatorCallback) {
                validate((OAuthBearerValidatorCallback) callback);
            } else if (callback instanceof OAuthBearerExtensionsValidatorCallback) {
                throw new UnsupportedCallbackException(callback, "no extensions are expected");
            } else {
                throw new UnsupportedCallbackException(callback);
            }
        }
    }

    private void validate(OAuthBearerValidatorCallback callback) throws IOException {
        String value = callback.tokenValue();
        Token token;
        try {
            token = new Token(value);
        } catch (RuntimeException error) {
            callback.error("invalid_token: " + error, null, null);
            return;
        }
        boolean isRefused = Files.exists(tokens.resolveSibling("refuse"));
        if (isRefused || token.lifetimeMs() < System.currentTimeMillis()) {
            callback.error("invalid_token", null, null);
            return;
        }
        Files.writeString(tokens, value + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        callback.token(token);
    }

    private static final class Token implements OAuthBearerToken {
        private final String value;
        private final long startMs;
        private final long endMs;

        Token(String value) {
            this.value = value;
            String url = new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8);
            URI address = URI.create(url);
            Map<String, String> query = new HashMap<>();
            for (String pair : address.getQuery().split("&")) {
                query.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
            }
            boolean isOfMsk = address.getHost().matches("kafka\\.[a-z0-9-]+\\.amazonaws\\.com")
                && "https".equals(address.getScheme())
                && "kafka-cluster:Connect".equals(query.get("Action"))
                && query.get("X-Amz-Credential").endsWith("/kafka-cluster/aws4_request");
            if (!isOfMsk) {
                throw new IllegalArgumentException("not a token of Amazon MSK");
            }
            startMs = LocalDateTime.parse(query.get("X-Amz-Date"), DATE).toInstant(ZoneOffset.UTC).toEpochMilli();
            endMs = startMs + 1_000L * Integer.parseInt(query.get("X-Amz-Expires"));
        }

        @Override
        public String value() {
            return value;
        }

        @Override
        public Set<String> scope() {
            return Set.of();
        }

        @Override
        public long lifetimeMs() {
            return endMs;
        }

        @Override
        public String principalName() {
            return "msk";
        }

        @Override
        public Long startTimeMs() {
            return startMs;
        }
    }
}
