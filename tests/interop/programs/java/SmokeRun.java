import java.io.FileInputStream;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.streams.tests.SmokeTestClient;
import org.apache.kafka.streams.tests.SmokeTestDriver;

/**
 * Kafka's smoke test of Streams in little: its application twice and its driver in one virtual machine. Arguments: a file
 * with the settings of the application, keys, records for each key, seconds in which they are written. The exit code
 * says whether the driver found every result right.
 */
public final class SmokeRun {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileInputStream file = new FileInputStream(arguments[0])) {
            settings.load(file);
        }
        int keys = Integer.parseInt(arguments[1]);
        int records = Integer.parseInt(arguments[2]);
        Duration duration = Duration.ofSeconds(Integer.parseInt(arguments[3]));
        String servers = settings.getProperty("bootstrap.servers");
        SmokeTestClient[] applications = {new SmokeTestClient("first"), new SmokeTestClient("second")};
        for (SmokeTestClient application : applications) {
            Thread thread = new Thread(() -> application.start(settings));
            thread.setDaemon(true);
            thread.start();
        }
        Map<String, Set<Integer>> written = SmokeTestDriver.generate(servers, keys, records, duration);
        boolean exactlyOnce = settings.getProperty("processing.guarantee").startsWith("exactly");
        boolean passed = SmokeTestDriver.verify(servers, written, records, exactlyOnce).passed();
        for (SmokeTestClient application : applications) {
            application.close();
            passed &= !application.error();
        }
        Runtime.getRuntime().halt(passed ? 0 : 1);
    }
}
