package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;

/** Runs one kind of Pulsar's classes; made anew by every reset line. */
public interface Handler {

    /** Starts with empty memory. {@code options} is the object under {@code reset}. */
    void reset(JsonNode options) throws Exception;

    /** One turn: the raw JSON bytes of each top-level field of the line. Returns what Jackson can write. */
    Object turn(Map<String, byte[]> line) throws Exception;

    /** {@code turns} more turns on the last input: figures in milliseconds. */
    Object bench(int turns) throws Exception;
}
