import java.io.RandomAccessFile;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.*;
import java.util.stream.*;

public class Files {
    public static void main(String[] arguments) throws Exception {
        Path dir = Path.of(arguments[0]), a = dir.resolve("a"), b = dir.resolve("b");
        Stream<String> lines = IntStream.range(0, 5000).mapToObj(i -> "line " + i + "\n");
        String text = lines.collect(Collectors.joining());
        java.nio.file.Files.writeString(a, text);
        java.nio.file.Files.writeString(a, "appended\n", StandardOpenOption.APPEND);
        System.out.println(java.nio.file.Files.size(a) + " " + a.toFile().length());
        java.nio.file.Files.copy(a, b);
        try (RandomAccessFile file = new RandomAccessFile(b.toFile(), "rw")) {
            file.seek(4093);
            file.writeBytes("changed");
            file.setLength(10001);
        }
        Path c = java.nio.file.Files.move(b, dir.resolve("c"), StandardCopyOption.ATOMIC_MOVE);
        ByteBuffer part = ByteBuffer.allocate(15);
        try (FileChannel channel = FileChannel.open(c)) {
            channel.read(part, 4090);
            System.out.println(channel.size() + " " + new String(part.array()).replace("\n", "|"));
        }
        try (Stream<Path> names = java.nio.file.Files.list(dir)) {
            System.out.println(names.map(it -> it.getFileName().toString()).sorted().toList());
        }
    }
}
