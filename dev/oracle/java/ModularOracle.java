package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.google.common.collect.Multimap;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.broker.loadbalance.impl.ModularLoadManagerImpl;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.util.ObjectMapperFactory;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;

/**
 * Shedders and placements of the modular load manager, as that manager calls them.
 *
 * <p>A turn gives {@code brokers}, {@code bundles} and {@code recent} as {@code bundlekeel decide} takes them, and
 * optionally {@code select}: a list of {@code {"bundle":name,"candidates":[broker,..]}}. The answer tells, besides
 * what is unloaded, in which order Java's maps gave brokers and bundles (ties and sums depend on it), the strategies'
 * memory, and for each selection the set out of which the class drew.
 */
public final class ModularOracle implements Handler {

    private static final ObjectMapper PLAIN = new ObjectMapper();
    private static final ObjectReader REPORT = ObjectMapperFactory.getMapper().reader().forType(LocalBrokerData.class);
    private static final ObjectReader BUNDLE = ObjectMapperFactory.getMapper().reader().forType(BundleData.class);
    private static final String IMPL = ModularLoadManagerImpl.class.getPackageName() + ".";
    private static final Map<String, String> CLASSES = Map.of(
            "threshold", "ThresholdShedder",
            "overload", "OverloadShedder",
            "uniform", "UniformLoadShedder",
            "avg", "AvgShedder",
            "least_long_term_message_rate", "LeastLongTermMessageRate",
            "least_resource_usage", "LeastResourceUsageWithWeight",
            "round_robin", "RoundRobinBrokerSelector");

    private static final int DRAWS = 40;
    private static final Method NAMED = Arrays.stream(ModularLoadManagerStrategy.class.getMethods())
            .filter(method -> method.getName().equals("selectBrokerForBundle")).findAny().orElse(null);

    private final NamespaceBundleStats defaults = new NamespaceBundleStats();
    private ServiceConfiguration conf;
    private LoadSheddingStrategy shedder;
    private ModularLoadManagerStrategy placement;
    private Map<String, byte[]> reports = Map.of();
    private LoadData load;

    public ModularOracle() {
        defaults.msgThroughputIn = ModularLoadManagerImpl.DEFAULT_MESSAGE_THROUGHPUT;
        defaults.msgThroughputOut = ModularLoadManagerImpl.DEFAULT_MESSAGE_THROUGHPUT;
        defaults.msgRateIn = ModularLoadManagerImpl.DEFAULT_MESSAGE_RATE;
        defaults.msgRateOut = ModularLoadManagerImpl.DEFAULT_MESSAGE_RATE;
    }

    @Override
    public void reset(JsonNode options) throws Exception {
        conf = Config.of(options.path("config"));
        String older = options.path("older_jar").asText("");
        if (options.hasNonNull("strategy")) {
            shedder = (LoadSheddingStrategy) make(options.get("strategy").asText(), older);
        }
        if (options.hasNonNull("placement")) {
            String name = options.get("placement").asText();
            // AvgShedder is both, and then one object, as in the broker.
            boolean shared = shedder instanceof AvgShedder && name.equals("avg");
            placement = shared ? (ModularLoadManagerStrategy) shedder : (ModularLoadManagerStrategy) make(name, older);
        }
    }

    private static Object make(String name, String olderJar) throws Exception {
        String className = IMPL + CLASSES.get(name);
        ClassLoader loader = olderJar.isEmpty()
                ? ModularOracle.class.getClassLoader() : new OlderClasses(new File(olderJar), className);
        return Class.forName(className, true, loader).getDeclaredConstructor().newInstance();
    }

    @Override
    public Object turn(Map<String, byte[]> line) throws Exception {
        Map<String, Object> answer = new LinkedHashMap<>();
        if (line.containsKey("decode")) {
            return decoded(line.get("decode"));
        }
        if (line.containsKey("monitors")) {
            return Map.of("monitors", monitors(line));
        }
        if (line.containsKey("brokers")) {
            read(line);
        }
        answer.put("brokers", new ArrayList<>(load.getBrokerData().keySet()));
        if (shedder != null) {
            shed(answer);
        }
        if (line.containsKey("select")) {
            answer.put("selected", select(PLAIN.readTree(line.get("select"))));
        }
        return answer;
    }

    private void read(Map<String, byte[]> line) throws Exception {
        load = new LoadData();
        reports = Lines.fields(line.get("brokers"));
        if (line.containsKey("bundles")) {
            for (Map.Entry<String, byte[]> entry : Lines.fields(line.get("bundles")).entrySet()) {
                load.getBundleData().put(entry.getKey(), BUNDLE.readValue(entry.getValue()));
            }
        }
        if (line.containsKey("recent")) {
            for (JsonNode name : PLAIN.readTree(line.get("recent"))) {
                load.getRecentlyUnloadedBundles().put(name.asText(), 0L);
            }
        }
        for (Map.Entry<String, LocalBrokerData> entry : decode().entrySet()) {
            BrokerData data = new BrokerData(entry.getValue());
            data.getTimeAverageData().reset(entry.getValue().getLastStats().keySet(), load.getBundleData(), defaults);
            load.getBrokerData().put(entry.getKey(), data);
        }
        // The manager tells both on every update which brokers are there.
        Set<String> active = load.getBrokerData().keySet();
        if (shedder != null) {
            shedder.onActiveBrokersChange(active);
        }
        if (placement != null) {
            placement.onActiveBrokersChange(active);
        }
    }

    private Map<String, LocalBrokerData> decode() throws Exception {
        Map<String, LocalBrokerData> found = new LinkedHashMap<>();
        for (Map.Entry<String, byte[]> entry : reports.entrySet()) {
            found.put(entry.getKey(), REPORT.readValue(entry.getValue()));
        }
        return found;
    }

    private void shed(Map<String, Object> answer) throws Exception {
        answer.put("bundles", new ArrayList<>(load.getBundleDataForLoadShedding().keySet()));
        Multimap<String, String> selected = shedder.findBundlesForUnloading(load, conf);
        Map<String, Collection<String>> unload = new LinkedHashMap<>();
        Map<String, String> to = new LinkedHashMap<>();
        selected.asMap().forEach((broker, bundles) -> unload.put(broker, new ArrayList<>(bundles)));
        if (field(shedder, "pendingBundleToUnload") instanceof Map<?, ?> pending) {
            Map<String, List<Object>> planned = new LinkedHashMap<>();
            for (Map.Entry<?, ?> one : pending.entrySet()) {
                planned.put((String) one.getKey(), List.of(
                        field(one.getValue(), "sourceBroker"), field(one.getValue(), "destinationBroker")));
            }
            answer.put("planned", planned);
        } else if (shedder instanceof AvgShedder coupled) {
            // What the manager asks next; the destination is in the class's map already.
            Set<String> all = load.getBrokerData().keySet();
            selected.values().forEach(bundle -> to.put(bundle,
                    coupled.selectBroker(all, load.getBundleData().get(bundle), load, conf).orElseThrow()));
        }
        if (shedder instanceof AvgShedder) {
            answer.put("sorted", new ArrayList<>(((Map<?, ?>) field(shedder, "brokerScoreMap")).keySet()));
        }
        answer.put("unload", unload);
        answer.put("to", to);
        answer.put("memory", memory(shedder));
    }

    private List<Object> select(JsonNode wanted) throws Exception {
        List<Object> found = new ArrayList<>();
        for (JsonNode one : wanted) {
            Set<String> candidates = new LinkedHashSet<>();
            one.get("candidates").forEach(name -> candidates.add(name.asText()));
            BundleData bundle = load.getBundleData().get(one.path("bundle").asText(""));
            if (bundle == null) {
                bundle = new BundleData(10, 1000, defaults);
            }
            Map<String, Object> answer = new LinkedHashMap<>();
            String name = one.path("bundle").asText("");
            String chosen = choose(candidates, name, bundle);
            answer.put("chosen", chosen);
            if (field(placement, "bestBrokers") instanceof Collection<?> best) {
                answer.put("allowed", new ArrayList<>(best));
            } else if (field(placement, "pendingBundleToUnload") != null && chosen != null) {
                // This class draws without remembering: so many draws show every broker that it may draw.
                Set<String> drawn = new HashSet<>();
                for (int i = 0; i < DRAWS * candidates.size(); i++) {
                    drawn.add(choose(candidates, name, bundle));
                }
                answer.put("allowed", new ArrayList<>(drawn));
            }
            answer.put("memory", memory(placement));
            found.add(answer);
        }
        return found;
    }

    /** What the manager asks the placement: since 5.0 with the bundle's name. Null: the class names no broker. */
    private String choose(Set<String> candidates, String name, BundleData bundle) throws Exception {
        if (NAMED == null) {
            return placement.selectBroker(candidates, bundle, load, conf).orElse(null);
        }
        return (String) ((Optional<?>) NAMED.invoke(placement, candidates, name, bundle, load, conf)).orElse(null);
    }

    /** What the class keeps between calls, by the names of its fields. */
    private static Map<String, Object> memory(Object strategy) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (String name : List.of("brokerAvgResourceUsage", "brokerAvgResourceUsageWithWeight",
                "brokerHitCountForHigh", "brokerHitCountForLow")) {
            Object value = field(strategy, name);
            if (value instanceof Map<?, ?> map) {
                Map<String, Object> plain = new LinkedHashMap<>();
                map.forEach((key, number) -> plain.put((String) key, ((Number) number).doubleValue()));
                found.put(name, plain);
            }
        }
        return found;
    }

    private static Object field(Object holder, String name) throws IllegalAccessException {
        for (Field field : holder.getClass().getDeclaredFields()) {
            if (field.getName().equals(name)) {
                field.setAccessible(true);
                return field.get(holder);
            }
        }
        return null;
    }

    /** For the parity of decoding: what Pulsar's mapper makes of each report, or that it refuses it. */
    private static Map<String, Object> decoded(byte[] texts) throws Exception {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Map.Entry<String, byte[]> entry : Lines.fields(texts).entrySet()) {
            Map<String, Object> one = new LinkedHashMap<>();
            try {
                LocalBrokerData data = REPORT.readValue(entry.getValue());
                one.put("percent", new float[] {data.getCpu().percentUsage(), data.getDirectMemory().percentUsage(),
                        data.getBandwidthIn().percentUsage(), data.getBandwidthOut().percentUsage()});
                one.put("traffic", new double[] {data.getMsgRateIn(), data.getMsgRateOut(),
                        data.getMsgThroughputIn(), data.getMsgThroughputOut()});
                one.put("bundles", data.getBundles());
                one.put("stats", data.getLastStats().keySet());
            } catch (Exception error) {
                one = Map.of("error", String.valueOf(error));
            }
            found.put(entry.getKey(), one);
        }
        return found;
    }

    /** Which of these namespaces the older release takes for heartbeats or SLA monitors. */
    private static List<String> monitors(Map<String, byte[]> line) throws Exception {
        String name = NamespaceService.class.getName();
        ClassLoader loader = new OlderClasses(new File(PLAIN.readTree(line.get("older_jar")).asText()), name);
        Method asked = Class.forName(name, true, loader).getMethod("isSLAOrHeartbeatNamespace", String.class);
        List<String> found = new ArrayList<>();
        for (JsonNode namespace : PLAIN.readTree(line.get("monitors"))) {
            if ((boolean) asked.invoke(null, namespace.asText())) {
                found.add(namespace.asText());
            }
        }
        return found;
    }

    @Override
    public Object bench(int turns) throws Exception {
        Timings decoding = new Timings();
        Timings planning = new Timings();
        int unloaded = 0;
        for (int turn = 0; turn < turns; turn++) {
            long start = System.nanoTime();
            Map<String, LocalBrokerData> decoded = decode();
            decoding.add(System.nanoTime() - start);
            decoded.forEach((name, data) -> load.getBrokerData().get(name).setLocalData(data));
            start = System.nanoTime();
            unloaded = shedder.findBundlesForUnloading(load, conf).size();
            planning.add(System.nanoTime() - start);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("bench", turns);
        answer.put("unloaded", unloaded);
        decoding.tell("decode", answer);
        planning.tell("plan", answer);
        return answer;
    }
}
