package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitState.StorageType;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateData;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateDataConflictResolver;

/**
 * The conflict resolver of the extensible load manager's ownership channel, and a table made by it.
 *
 * <p>{@code reset} takes {@code store}: whether the metadata-store variant's rules hold. A turn gives {@code entries}
 * (entry or null) and either {@code pairs}, a list of {@code [from,to]} indexes into them, or {@code messages}, a list
 * of {@code [bundle,index]} that the table takes in. Entries are read with the schema of the channel's topic.
 * {@code keep} answers with one letter each: {@code 1} the left one stays, {@code 0} it does not, {@code e} the class
 * threw, upon which a table view drops the message. {@code table} is what the table holds, written by that schema.
 */
public final class ChannelOracle implements Handler {

    private static final ObjectMapper PLAIN = new ObjectMapper();

    private final ServiceUnitStateDataConflictResolver resolver = new ServiceUnitStateDataConflictResolver();
    private final Map<String, ServiceUnitStateData> table = new HashMap<>();
    private Map<String, byte[]> last = Map.of();

    @Override
    public void reset(JsonNode options) {
        resolver.setStorageType(
                options.path("store").asBoolean() ? StorageType.MetadataStore : StorageType.SystemTopic);
    }

    @Override
    public Object turn(Map<String, byte[]> line) throws Exception {
        last = line;
        ServiceUnitStateData[] entries = entries(PLAIN.readTree(line.get("entries")));
        StringBuilder keep = new StringBuilder();
        if (line.containsKey("pairs")) {
            for (JsonNode pair : PLAIN.readTree(line.get("pairs"))) {
                keep.append(decide(entries[pair.get(0).asInt()], entries[pair.get(1).asInt()]));
            }
            return Map.of("keep", keep.toString());
        }
        for (JsonNode message : PLAIN.readTree(line.get("messages"))) {
            keep.append(apply(message.get(0).asText(), entries[message.get(1).asInt()]));
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("keep", keep.toString());
        Map<String, JsonNode> held = new TreeMap<>();
        for (Map.Entry<String, ServiceUnitStateData> entry : table.entrySet()) {
            held.put(entry.getKey(), PLAIN.readTree(resolver.getSchema().encode(entry.getValue())));
        }
        answer.put("table", held);
        return answer;
    }

    @Override
    public Object bench(int turns) throws Exception {
        Timings timings = new Timings();
        for (int i = 0; i < turns; i++) {
            long start = System.nanoTime();
            turn(last);
            timings.add(System.nanoTime() - start);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("bench", turns);
        timings.tell("turn", answer);
        return answer;
    }

    private char apply(String bundle, ServiceUnitStateData entry) {
        char kept = decide(table.get(bundle), entry);
        if (kept == '0' && entry == null) {
            table.remove(bundle);
        } else if (kept == '0') {
            table.put(bundle, entry);
        }
        return kept;
    }

    private char decide(ServiceUnitStateData from, ServiceUnitStateData to) {
        try {
            return resolver.shouldKeepLeft(from, to) ? '1' : '0';
        } catch (NullPointerException error) {
            return 'e';
        }
    }

    private ServiceUnitStateData[] entries(JsonNode texts) throws Exception {
        ServiceUnitStateData[] entries = new ServiceUnitStateData[texts.size()];
        for (int i = 0; i < entries.length; i++) {
            JsonNode text = texts.get(i);
            entries[i] = text.isNull() ? null : resolver.getSchema().decode(PLAIN.writeValueAsBytes(text));
        }
        return entries;
    }
}
