import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.Serializer;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/** Count and sum for each user and window with the DSL, final results only, exactly once. */
public final class KafkaStreamsTotals {
    record Event(String user, long amount, long ts) { }

    record Sums(long count, long total) { }

    private static final JsonFactory JSON = new JsonFactory();

    /** The three fields that the job needs, read as a stream of tokens. */
    private static Event read(byte[] message) {
        String user = null;
        long amount = 0;
        long ts = 0;
        try (JsonParser parser = JSON.createParser(message)) {
            while (parser.nextToken() != null) {
                if (parser.currentToken() != JsonToken.FIELD_NAME) {
                    continue;
                }
                String name = parser.currentName();
                parser.nextToken();
                switch (name) {
                    case "user" -> user = parser.getText();
                    case "amount" -> amount = parser.getLongValue();
                    case "ts" -> ts = parser.getLongValue();
                    default -> { }
                }
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
        return new Event(user, amount, ts);
    }

    private static <T> Serde<T> serde(Serializer<T> serializer, Deserializer<T> deserializer) {
        return Serdes.serdeFrom(serializer, deserializer);
    }

    public static void main(String[] args) throws Exception {
        String output = args[2];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", "bench-" + output);
        settings.put("state.dir", args[3]);
        settings.put("num.stream.threads", args[4]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "1000");
        settings.put("replication.factor", "1");
        settings.put("statestore.cache.max.bytes", "268435456");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("consumer.max.poll.records", "10000");
        settings.put("consumer.fetch.max.bytes", "8388608");
        settings.put("consumer.max.partition.fetch.bytes", "8388608");
        settings.put("producer.linger.ms", "20");
        settings.put("producer.batch.size", "262144");

        Serde<Event> events = serde((topic, event) -> {
            byte[] user = event.user().getBytes(StandardCharsets.UTF_8);
            return ByteBuffer.allocate(16 + user.length).putLong(event.amount()).putLong(event.ts()).put(user).array();
        }, (topic, bytes) -> {
            ByteBuffer buffer = ByteBuffer.wrap(bytes);
            long amount = buffer.getLong();
            long ts = buffer.getLong();
            return new Event(new String(bytes, 16, bytes.length - 16, StandardCharsets.UTF_8), amount, ts);
        });
        Serde<Event> json = serde((topic, event) -> null, (topic, bytes) -> read(bytes));
        Serde<Sums> sums = serde(
                (topic, of) -> of == null ? null : ByteBuffer.allocate(16).putLong(of.count()).putLong(of.total()).array(),
                (topic, bytes) -> {
                    if (bytes == null) {
                        return null;
                    }
                    ByteBuffer buffer = ByteBuffer.wrap(bytes);
                    return new Sums(buffer.getLong(), buffer.getLong());
                });

        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.ByteArray(), json)
                        .withTimestampExtractor((record, partitionTime) -> ((Event) record.value()).ts()))
                .groupBy((key, event) -> event.user(), Grouped.with(Serdes.String(), events))
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofSeconds(2)))
                .aggregate(() -> new Sums(0, 0),
                        (user, event, of) -> new Sums(of.count() + 1, of.total() + event.amount()),
                        Materialized.<String, Sums, WindowStore<Bytes, byte[]>>as("totals")
                                .withKeySerde(Serdes.String()).withValueSerde(sums))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream()
                .map((window, of) -> KeyValue.pair(window.key(), "{\"user\":\"" + window.key() + "\",\"window_end\":"
                        + window.window().end() + ",\"count\":" + of.count() + ",\"total\":" + of.total() + "}"))
                .to(output, Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(settings), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(2))));
        streams.start();
        Thread.currentThread().join();
    }
}
