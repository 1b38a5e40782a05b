package bundlekeel.oracle;

import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.Map;

/** Cuts a JSON object into the raw bytes of its fields, so that Pulsar's mapper reads the very text. */
final class Lines {

    private static final JsonFactory FACTORY = new JsonFactory();

    private Lines() {
    }

    /** Field name to the bytes of its value, in the order of the text. */
    static Map<String, byte[]> fields(byte[] text) throws IOException {
        Map<String, byte[]> found = new LinkedHashMap<>();
        try (JsonParser parser = FACTORY.createParser(text)) {
            if (parser.nextToken() != JsonToken.START_OBJECT) {
                throw new IOException("expected an object");
            }
            while (parser.nextToken() == JsonToken.FIELD_NAME) {
                String name = parser.getCurrentName();
                JsonToken token = parser.nextToken();
                if (token.isScalarValue()) {
                    // The end of a text or number is known only once it was read.
                    parser.finishToken();
                }
                int from = (int) parser.currentTokenLocation().getByteOffset();
                parser.skipChildren();
                int to = (int) parser.currentLocation().getByteOffset();
                found.put(name, Arrays.copyOfRange(text, from, to));
            }
        }
        return found;
    }
}
