import java.nio.channels.FileChannel;
import java.nio.channels.FileChannel.MapMode;
import java.nio.channels.SocketChannel;
import java.nio.channels.ServerSocketChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.concurrent.Callable;

/** Each way of Java to a file without read and write, and what comes of it. */
public class Maps {
    static void say(String name, Callable<Object> what) {
        try {
            System.out.println(name + ": " + what.call());
        } catch (Exception error) {
            System.out.println(name + ": " + error.getMessage());
        }
    }

    public static void main(String[] arguments) throws Exception {
        Path file = Path.of(arguments[0], "mapped"), copy = Path.of(arguments[0], "copy");
        Files.write(file, "x".repeat(100000).getBytes());
        StandardOpenOption[] both = {StandardOpenOption.READ, StandardOpenOption.WRITE};
        StandardOpenOption[] made = {StandardOpenOption.CREATE, StandardOpenOption.WRITE};
        try (FileChannel from = FileChannel.open(file, both);
                FileChannel to = FileChannel.open(copy, made);
                ServerSocketChannel server = ServerSocketChannel.open().bind(null);
                SocketChannel socket = SocketChannel.open(server.getLocalAddress())) {
            say("map READ_ONLY", () -> (char) from.map(MapMode.READ_ONLY, 0, 100000).get(99999));
            say("map READ_WRITE", () -> (char) from.map(MapMode.READ_WRITE, 0, 100000).get(99999));
            say("map PRIVATE", () -> (char) from.map(MapMode.PRIVATE, 0, 100000).get(99999));
            say("transferTo a socket", () -> from.transferTo(0, 9999, socket));
            say("transferTo a file", () -> from.transferTo(0, 100000, to));
            say("transferFrom a file", () -> to.transferFrom(from, 0, 100000));
        }
        Files.delete(copy);
        say("Files.copy", () -> Files.size(Files.copy(file, copy)));
    }
}
