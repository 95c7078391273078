import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Exit;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Runs the main method of one class after the other in one virtual machine, because starting one takes longer than most
 * tools do. Every line on standard input asks for a run: {"tool": class, "args": [...], "input": text}; every line on
 * standard output tells how it went: {"exit": code, "out": text, "err": text}.
 */
public final class ToolShell {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** Thrown where a tool would end the process. */
    private static final class Ended extends Error {
        final int code;

        Ended(int code) {
            super("exit " + code, null, false, false);
            this.code = code;
        }
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            answers.println(JSON.writeValueAsString(run(JSON.readTree(line))));
            answers.flush();
        }
        System.exit(0);
    }

    private static ObjectNode run(JsonNode request) throws Exception {
        List<String> arguments = new ArrayList<>();
        request.get("args").forEach(each -> arguments.add(each.asText()));
        ByteArrayOutputStream out = new ByteArrayOutputStream();
        ByteArrayOutputStream err = new ByteArrayOutputStream();
        // A tool may catch what stands for its own exit; its first word counts.
        int[] exit = {Integer.MIN_VALUE};
        Exit.Procedure end = (code, message) -> {
            if (exit[0] == Integer.MIN_VALUE) exit[0] = code;
            throw new Ended(code);
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        List<Runnable> hooks = new ArrayList<>();
        Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
        PrintStream realErr = System.err;
        System.setIn(new ByteArrayInputStream(request.path("input").asText("").getBytes(UTF_8)));
        System.setOut(new PrintStream(out, true, UTF_8));
        System.setErr(new PrintStream(err, true, UTF_8));
        int code = 0;
        try {
            Class.forName(request.get("tool").asText())
                .getMethod("main", String[].class)
                .invoke(null, (Object) arguments.toArray(new String[0]));
        } catch (InvocationTargetException failure) {
            if (!(failure.getCause() instanceof Ended)) {
                code = 70;
                failure.getCause().printStackTrace();
            }
        } finally {
            // The console producer sends what it still holds only when the process ends.
            hooks.forEach(Runnable::run);
            System.out.flush();
            System.err.flush();
            System.setErr(realErr);
        }
        ObjectNode answer = JSON.createObjectNode();
        answer.put("exit", exit[0] == Integer.MIN_VALUE ? code : exit[0]);
        answer.put("out", out.toString(UTF_8));
        answer.put("err", err.toString(UTF_8));
        return answer;
    }
}
