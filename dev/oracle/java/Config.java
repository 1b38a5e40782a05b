package bundlekeel.oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.util.Iterator;
import java.util.Map;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.util.ObjectMapperFactory;

/** A broker's configuration from Pulsar's own keys; an unknown key is an error. */
final class Config {

    private Config() {
    }

    static ServiceConfiguration of(JsonNode keys) throws Exception {
        ServiceConfiguration conf = new ServiceConfiguration();
        for (Iterator<Map.Entry<String, JsonNode>> all = keys.fields(); all.hasNext();) {
            Map.Entry<String, JsonNode> entry = all.next();
            Field field = ServiceConfiguration.class.getDeclaredField(entry.getKey());
            field.setAccessible(true);
            field.set(conf, ObjectMapperFactory.create().convertValue(entry.getValue(), field.getType()));
        }
        return conf;
    }
}
