import com.fasterxml.jackson.core.JsonFactory;
import com.fasterxml.jackson.core.JsonParser;
import com.fasterxml.jackson.core.JsonToken;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Properties;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.serialization.DeserializationSchema;
import org.apache.flink.api.common.serialization.SerializationSchema;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.windowing.ProcessWindowFunction;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.windows.TimeWindow;
import org.apache.flink.util.Collector;

/** Count and sum for each user and window, from Kafka to Kafka, exactly once. */
public final class FlinkTotals {
    public static final class Event {
        public String user;
        public long amount;
        public long ts;
    }

    public static final class Sums {
        public long count;
        public long total;
    }

    public static final class Row {
        public String user;
        public long windowEnd;
        public long count;
        public long total;
    }

    /** The three fields that the job needs, read as a stream of tokens: no tree, no binding. */
    public static final class EventReader implements DeserializationSchema<Event> {
        private transient JsonFactory json;

        @Override
        public void open(InitializationContext context) {
            json = new JsonFactory();
        }

        @Override
        public Event deserialize(byte[] message) throws IOException {
            Event event = new Event();
            try (JsonParser parser = json.createParser(message)) {
                while (parser.nextToken() != null) {
                    if (parser.currentToken() != JsonToken.FIELD_NAME) {
                        continue;
                    }
                    String name = parser.currentName();
                    parser.nextToken();
                    switch (name) {
                        case "user" -> event.user = parser.getText();
                        case "amount" -> event.amount = parser.getLongValue();
                        case "ts" -> event.ts = parser.getLongValue();
                        default -> { }
                    }
                }
            }
            return event;
        }

        @Override
        public boolean isEndOfStream(Event event) {
            return false;
        }

        @Override
        public TypeInformation<Event> getProducedType() {
            return TypeInformation.of(Event.class);
        }
    }

    public static final class Totals implements AggregateFunction<Event, Sums, Sums> {
        @Override
        public Sums createAccumulator() {
            return new Sums();
        }

        @Override
        public Sums add(Event event, Sums sums) {
            sums.count++;
            sums.total += event.amount;
            return sums;
        }

        @Override
        public Sums getResult(Sums sums) {
            return sums;
        }

        @Override
        public Sums merge(Sums one, Sums other) {
            one.count += other.count;
            one.total += other.total;
            return one;
        }
    }

    public static final class ToRow extends ProcessWindowFunction<Sums, Row, String, TimeWindow> {
        @Override
        public void process(String user, Context context, Iterable<Sums> sums, Collector<Row> out) {
            Sums of = sums.iterator().next();
            Row row = new Row();
            row.user = user;
            row.windowEnd = context.window().getEnd();
            row.count = of.count;
            row.total = of.total;
            out.collect(row);
        }
    }

    public static final class RowKey implements SerializationSchema<Row> {
        @Override
        public byte[] serialize(Row row) {
            return row.user.getBytes(StandardCharsets.UTF_8);
        }
    }

    public static final class RowValue implements SerializationSchema<Row> {
        @Override
        public byte[] serialize(Row row) {
            return ("{\"user\":\"" + row.user + "\",\"window_end\":" + row.windowEnd + ",\"count\":" + row.count
                    + ",\"total\":" + row.total + "}").getBytes(StandardCharsets.UTF_8);
        }
    }

    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String input = args[1];
        String output = args[2];
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("execution.checkpointing.dir", args[3]);
        configuration.setString("state.backend.type", args[5]);
        if (args[5].equals("rocksdb")) {
            configuration.setString("execution.checkpointing.incremental", "true");
            configuration.setString("taskmanager.memory.managed.size", "512m");
        }
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("parallelism.default", args[4]);
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        KafkaSource<Event> source = KafkaSource.<Event>builder()
                .setBootstrapServers(servers)
                .setTopics(input)
                .setGroupId("bench-" + output)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setValueOnlyDeserializer(new EventReader())
                .setProperty("max.poll.records", "10000")
                .setProperty("fetch.max.bytes", "8388608")
                .setProperty("max.partition.fetch.bytes", "8388608")
                .build();
        WatermarkStrategy<Event> watermarks = WatermarkStrategy
                .<Event>forBoundedOutOfOrderness(Duration.ofSeconds(2))
                .withTimestampAssigner((event, recordTimestamp) -> event.ts);
        Properties producer = new Properties();
        producer.setProperty("transaction.timeout.ms", "600000");
        producer.setProperty("linger.ms", "20");
        producer.setProperty("batch.size", "262144");
        env.fromSource(source, watermarks, "purchases")
                .keyBy(event -> event.user)
                .window(TumblingEventTimeWindows.of(Duration.ofSeconds(10)))
                .aggregate(new Totals(), new ToRow())
                .sinkTo(KafkaSink.<Row>builder()
                        .setBootstrapServers(servers)
                        .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                        .setTransactionalIdPrefix(output)
                        .setKafkaProducerConfig(producer)
                        .setRecordSerializer(KafkaRecordSerializationSchema.<Row>builder()
                                .setTopic(output)
                                .setKeySerializationSchema(new RowKey())
                                .setValueSerializationSchema(new RowValue())
                                .build())
                        .build());
        env.execute("totals");
    }
}
