package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.File;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLookupData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadDecision;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.NamespaceUnloadStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/**
 * TransferShedder of the extensible load manager, as its unload scheduler calls it.
 *
 * <p>A turn gives {@code now}, {@code brokers}, {@code top_bundles}, {@code missing}, {@code recent} and
 * {@code recent_brokers} as {@code bundlekeel decide} takes them. The class reads the machine's clock, so every time
 * is moved by the same amount, and a call during which the clock passed somebody's time to live is made again.
 * The constructor meant for tests leaves out what needs a running broker: the channel and the policies.
 * With {@code older_jar} the class comes out of that release's jar.
 */
public final class TransferOracle implements Handler {

    private static final ObjectMapper PULSAR = ObjectMapperFactory.create();

    private final Counter counter = new Counter();
    private final Field updatedAt;
    private NamespaceUnloadStrategy shedder;
    private Field hits;
    private ServiceConfiguration conf;
    private Map<String, byte[]> last = Map.of();

    public TransferOracle() throws Exception {
        updatedAt = BrokerLoadData.class.getDeclaredField("updatedAt");
        updatedAt.setAccessible(true);
    }

    @Override
    public void reset(JsonNode options) throws Exception {
        conf = Config.of(options.path("config"));
        String name = TransferShedder.class.getName();
        String older = options.path("older_jar").asText("");
        ClassLoader loader = older.isEmpty()
                ? TransferOracle.class.getClassLoader() : new OlderClasses(new File(older), name);
        Class<?> found = Class.forName(name, true, loader);
        shedder = (NamespaceUnloadStrategy) found.getConstructor(UnloadCounter.class).newInstance(counter);
        hits = found.getDeclaredField("unloadConditionHitCount");
        hits.setAccessible(true);
    }

    @Override
    public Object turn(Map<String, byte[]> line) throws Exception {
        last = line;
        Picture seen = new Picture(line);
        Set<UnloadDecision> decided = seen.decide();
        Map<String, Object> answer = new LinkedHashMap<>();
        List<List<String>> unloads = new ArrayList<>();
        for (UnloadDecision one : decided) {
            unloads.add(List.of(one.getUnload().sourceBroker(), one.getUnload().serviceUnit(),
                    one.getUnload().destBroker().orElse(""), one.getReason().name()));
        }
        answer.put("unloads", unloads);
        answer.put("label", decided.isEmpty() ? counter.label : "Success");
        answer.put("reason", decided.isEmpty() ? counter.reason : "");
        answer.put("hits", hits.getInt(shedder));
        return answer;
    }

    @Override
    public Object bench(int turns) throws Exception {
        Timings decoding = new Timings();
        Timings planning = new Timings();
        for (int i = 0; i < turns; i++) {
            long start = System.nanoTime();
            Picture seen = new Picture(last);
            long decoded = System.nanoTime();
            seen.decide();
            planning.add(System.nanoTime() - decoded);
            decoding.add(decoded - start);
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("bench", turns);
        decoding.tell("decode", answer);
        planning.tell("plan", answer);
        return answer;
    }

    /** What one line says, and the call on it. */
    private final class Picture {

        private final Map<String, BrokerLoadData> loads = new LinkedHashMap<>();
        private final Map<String, Long> ages = new HashMap<>();
        private final Map<String, TopBundlesLoadData> tops = new LinkedHashMap<>();
        private final Map<String, BrokerLookupData> available = new HashMap<>();
        private final Map<String, Long> recent = new HashMap<>();
        private final Map<String, Long> recentBrokers = new HashMap<>();
        private final long now;

        Picture(Map<String, byte[]> line) throws Exception {
            now = PULSAR.readTree(line.getOrDefault("now", new byte[] {'0'})).asLong();
            for (Map.Entry<String, byte[]> entry : object(line, "brokers").entrySet()) {
                BrokerLoadData data = PULSAR.readValue(entry.getValue(), BrokerLoadData.class);
                loads.put(entry.getKey(), data);
                ages.put(entry.getKey(), now - data.getUpdatedAt());
                available.put(entry.getKey(), null);
            }
            for (Map.Entry<String, byte[]> entry : object(line, "top_bundles").entrySet()) {
                byte[] whole = ("{\"topBundlesLoadData\":" + new String(entry.getValue(), "UTF-8") + "}")
                        .getBytes("UTF-8");
                tops.put(entry.getKey(), PULSAR.readValue(whole, TopBundlesLoadData.class));
            }
            for (JsonNode name : PULSAR.readTree(line.getOrDefault("missing", EMPTY_LIST))) {
                available.put(name.asText(), null);
            }
            for (JsonNode name : PULSAR.readTree(line.getOrDefault("recent", EMPTY_LIST))) {
                recent.put(name.asText(), now);
            }
            JsonNode moved = PULSAR.readTree(line.getOrDefault("recent_brokers", EMPTY_OBJECT));
            for (Iterator<Map.Entry<String, JsonNode>> all = moved.fields(); all.hasNext();) {
                Map.Entry<String, JsonNode> entry = all.next();
                recentBrokers.put(entry.getKey(), entry.getValue().asLong());
            }
        }

        Set<UnloadDecision> decide() throws Exception {
            int before = hits.getInt(shedder);
            while (true) {
                counter.label = "";
                counter.reason = "";
                hits.setInt(shedder, before);
                long start = System.currentTimeMillis();
                long shift = start - now;
                for (Map.Entry<String, BrokerLoadData> entry : loads.entrySet()) {
                    updatedAt.setLong(entry.getValue(), start - ages.get(entry.getKey()));
                }
                Map<String, Long> moved = new HashMap<>();
                recentBrokers.forEach((broker, at) -> moved.put(broker, at + shift));
                Set<UnloadDecision> decided =
                        shedder.findBundlesForUnloading(context(), new HashMap<>(recent), moved);
                if (!passed(System.currentTimeMillis() - start)) {
                    return decided;
                }
            }
        }

        /** Whether somebody's data may have grown too old while the call ran. */
        private boolean passed(long elapsed) {
            long limit = conf.getLoadBalancerBrokerLoadDataTTLInSeconds() * 1000;
            return elapsed > 0 && ages.values().stream().anyMatch(age -> age <= limit && age + elapsed > limit);
        }

        private LoadManagerContext context() {
            LoadDataStore<?> loadStore = store(loads);
            LoadDataStore<?> topStore = store(tops);
            BrokerRegistry registry = proxy(BrokerRegistry.class, (self, method, arguments) ->
                    answerIf(method.getName(), "getAvailableBrokerLookupDataAsync",
                            CompletableFuture.completedFuture(available)));
            return proxy(LoadManagerContext.class, (self, method, arguments) -> switch (method.getName()) {
                case "brokerConfiguration" -> conf;
                case "brokerLoadDataStore" -> loadStore;
                case "topBundleLoadDataStore" -> topStore;
                case "brokerRegistry" -> registry;
                default -> throw new UnsupportedOperationException(method.getName());
            });
        }
    }

    private static final byte[] EMPTY_LIST = {'[', ']'};
    private static final byte[] EMPTY_OBJECT = {'{', '}'};

    private static Map<String, byte[]> object(Map<String, byte[]> line, String name) throws Exception {
        return Lines.fields(line.getOrDefault(name, EMPTY_OBJECT));
    }

    private static LoadDataStore<?> store(Map<String, ?> data) {
        return proxy(LoadDataStore.class, (self, method, arguments) -> switch (method.getName()) {
            case "get" -> Optional.ofNullable(data.get((String) arguments[0]));
            case "entrySet" -> data.entrySet();
            case "size" -> data.size();
            default -> throw new UnsupportedOperationException(method.getName());
        });
    }

    private static Object answerIf(String called, String known, Object answer) {
        if (called.equals(known)) {
            return answer;
        }
        throw new UnsupportedOperationException(called);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(type.getClassLoader(), new Class<?>[] {type}, handler));
    }

    /** Keeps what the class counts when it decides nothing. */
    private static final class Counter extends UnloadCounter {

        private String label = "";
        private String reason = "";

        @Override
        public void update(UnloadDecision.Label counted, UnloadDecision.Reason why) {
            label = counted.name();
            reason = why.name();
        }
    }
}
