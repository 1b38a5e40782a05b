import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.atomic.LongAdder;
import org.apache.pulsar.client.api.v5.Producer;
import org.apache.pulsar.client.api.v5.PulsarClient;
import org.apache.pulsar.client.api.v5.schema.Schema;

/**
 * Publishes to scalable topics: `url bytes rate,seconds,rate,seconds,... topic...`; rates are messages per second and topic.
 *
 * <p>Prints one JSON line per topic with its gaps: times (Unix ms) in which a message waited more than 300 ms.
 */
public class ScalableProducer {
    static final long GAP_MS = 300;
    static final int KEYS = 997;

    static class Topic extends Thread {
        final Producer<byte[]> producer;
        final double[] phases;
        final byte[] body;
        final LongAdder acked = new LongAdder();
        final LongAdder failed = new LongAdder();
        final ConcurrentLinkedQueue<long[]> late = new ConcurrentLinkedQueue<>();
        long sent;

        Topic(Producer<byte[]> producer, double[] phases, byte[] body) {
            this.producer = producer;
            this.phases = phases;
            this.body = body;
        }

        @Override
        public void run() {
            for (int i = 0; i < phases.length; i += 2) {
                long start = System.nanoTime(), count = 0;
                for (double passed = 0; passed < phases[i + 1]; passed = (System.nanoTime() - start) / 1e9) {
                    for (; count < passed * phases[i]; count++) {
                        send();
                    }
                    try {
                        Thread.sleep(10);
                    } catch (InterruptedException stop) {
                        return;
                    }
                }
            }
        }

        void send() {
            long at = System.currentTimeMillis();
            producer.async().newMessage().key("k" + sent++ % KEYS).value(body).send().whenComplete((id, error) -> {
                (error == null ? acked : failed).increment();
                long now = System.currentTimeMillis();
                if (now - at > GAP_MS) {
                    late.add(new long[] {at, now});
                }
            });
        }

        String line() {
            List<long[]> waits = new ArrayList<>(late);
            waits.sort((a, b) -> Long.compare(a[0], b[0]));
            List<long[]> gaps = new ArrayList<>();
            for (long[] wait : waits) {
                long[] last = gaps.isEmpty() ? null : gaps.get(gaps.size() - 1);
                if (last != null && wait[0] <= last[1]) {
                    last[1] = Math.max(last[1], wait[1]);
                } else {
                    gaps.add(wait);
                }
            }
            StringBuilder text = new StringBuilder();
            for (long[] gap : gaps) {
                text.append(text.length() == 0 ? "" : ",").append("[").append(gap[0]).append(",").append(gap[1]).append("]");
            }
            return String.format("{\"topic\":\"%s\",\"sent\":%d,\"acked\":%d,\"failed\":%d,\"gaps\":[%s]}",
                    producer.topic(), sent, acked.sum(), failed.sum(), text);
        }
    }

    public static void main(String[] args) throws Exception {
        String[] words = args[2].split(",");
        double[] phases = new double[words.length];
        for (int i = 0; i < words.length; i++) {
            phases[i] = Double.parseDouble(words[i]);
        }
        PulsarClient client = PulsarClient.builder().serviceUrl(args[0]).build();
        List<Topic> topics = new ArrayList<>();
        for (int i = 3; i < args.length; i++) {
            Producer<byte[]> producer = client.newProducer(Schema.bytes()).topic(args[i]).create();
            topics.add(new Topic(producer, phases, new byte[Integer.parseInt(args[1])]));
        }
        topics.forEach(Thread::start);
        for (Topic topic : topics) {
            topic.join();
        }
        Thread.sleep(5000);  // for the last acknowledgements
        topics.forEach(topic -> System.out.println(topic.line()));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
