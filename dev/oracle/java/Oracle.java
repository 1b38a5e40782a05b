package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Map;

/**
 * Runs Pulsar's real load-balancing classes on JSON lines: one line in, one line out, until the input ends.
 *
 * <p>{@code {"reset":{"kind":..,..}}} chooses a handler ("modular" is {@link ModularOracle}, "transfer" is
 * TransferOracle, "channel" ChannelOracle, "defaults" DefaultsOracle) and empties its memory; {@code {"bench":N}}
 * repeats the last turn; anything else is a turn. What a class throws becomes {@code {"error":..}}, and the rest goes on.
 */
public final class Oracle {

    private static final ObjectMapper MAPPER = new ObjectMapper();

    private Handler handler;

    public static void main(String[] arguments) throws IOException {
        // Whatever Pulsar's libraries print must not get between the answers.
        OutputStream out = new BufferedOutputStream(System.out, 1 << 16);
        System.setOut(System.err);
        InputStream in = new BufferedInputStream(System.in, 1 << 16);
        Oracle oracle = new Oracle();
        for (byte[] line = readLine(in); line != null; line = readLine(in)) {
            out.write(oracle.answer(line));
            out.write('\n');
            if (in.available() == 0) {
                out.flush();
            }
        }
        out.flush();
        // Threads that a library may have started must not keep the program alive.
        System.exit(0);
    }

    private byte[] answer(byte[] line) throws IOException {
        try {
            return MAPPER.writeValueAsBytes(dispatch(Lines.fields(line)));
        } catch (Throwable error) {
            return MAPPER.writeValueAsBytes(Map.of("error", String.valueOf(error)));
        }
    }

    private Object dispatch(Map<String, byte[]> line) throws Exception {
        if (line.containsKey("reset")) {
            JsonNode options = MAPPER.readTree(line.get("reset"));
            String kind = options.path("kind").asText("modular");
            String name = Character.toUpperCase(kind.charAt(0)) + kind.substring(1) + "Oracle";
            Class<?> found = Class.forName(Oracle.class.getPackageName() + "." + name);
            handler = (Handler) found.getDeclaredConstructor().newInstance();
            handler.reset(options);
            return Map.of();
        }
        if (line.containsKey("bench")) {
            return handler.bench(MAPPER.readValue(line.get("bench"), Integer.class));
        }
        return handler.turn(line);
    }

    private static byte[] readLine(InputStream in) throws IOException {
        ByteArrayOutputStream line = new ByteArrayOutputStream();
        int next = in.read();
        if (next < 0) {
            return null;
        }
        while (next >= 0 && next != '\n') {
            line.write(next);
            next = in.read();
        }
        return line.toByteArray();
    }
}
