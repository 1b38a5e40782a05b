package bundlekeel.oracle;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;

/** Collects durations and tells median, least and most in milliseconds. */
final class Timings {

    private final List<Double> spent = new ArrayList<>();

    void add(long nanoseconds) {
        spent.add(nanoseconds / 1e6);
    }

    void tell(String name, Map<String, Object> answer) {
        Collections.sort(spent);
        int middle = spent.size() / 2;
        double median = spent.size() % 2 == 1 ? spent.get(middle) : (spent.get(middle - 1) + spent.get(middle)) / 2;
        answer.put(name + "_ms_median", median);
        answer.put(name + "_ms_min", spent.get(0));
        answer.put(name + "_ms_max", spent.get(spent.size() - 1));
    }
}
