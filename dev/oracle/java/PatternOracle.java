package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;

/** Java's regular expressions: whether one is valid, and which texts it matches, as isolation policies are matched. */
final class PatternOracle implements Handler {

    private static final ObjectMapper MAPPER = new ObjectMapper();

    @Override
    public void reset(JsonNode options) {}

    /** {@code {"pattern":..,"texts":[..]}} to {@code {"valid":..,"matches":[..]}}. */
    @Override
    public Object turn(Map<String, byte[]> line) throws Exception {
        try {
            Pattern pattern = Pattern.compile(MAPPER.readValue(line.get("pattern"), String.class));
            List<Boolean> matches = new ArrayList<>();
            for (JsonNode text : MAPPER.readTree(line.get("texts"))) {
                matches.add(pattern.matcher(text.asText()).matches());
            }
            return Map.of("valid", true, "matches", matches);
        } catch (PatternSyntaxException error) {
            return Map.of("valid", false, "matches", List.of());
        }
    }

    @Override
    public Object bench(int turns) {
        throw new UnsupportedOperationException();
    }
}
