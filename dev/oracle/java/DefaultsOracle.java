package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.File;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** What a broker runs with that is told nothing: each field of {@code new ServiceConfiguration()} by its key. */
public final class DefaultsOracle implements Handler {

    private Object conf;

    /** With {@code older_jar} the class comes out of that release's jar. */
    @Override
    public void reset(JsonNode options) throws Exception {
        String name = ServiceConfiguration.class.getName();
        String older = options.path("older_jar").asText("");
        ClassLoader loader = older.isEmpty()
                ? DefaultsOracle.class.getClassLoader() : new OlderClasses(new File(older), name);
        conf = Class.forName(name, true, loader).getConstructor().newInstance();
    }

    /** {@code keys}: those that are asked for. One that this release does not have is left out of the answer. */
    @Override
    public Object turn(Map<String, byte[]> line) throws Exception {
        Map<String, Object> answer = new TreeMap<>();
        for (String key : ObjectMapperFactory.create().readValue(line.get("keys"), String[].class)) {
            try {
                Field field = conf.getClass().getDeclaredField(key);
                field.setAccessible(true);
                answer.put(key, field.get(conf));
            } catch (NoSuchFieldException error) {
                continue;
            }
        }
        return answer;
    }

    @Override
    public Object bench(int turns) {
        throw new UnsupportedOperationException("defaults have no turns");
    }
}
