import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.file.sink.FileSink;
import org.apache.flink.connector.jdbc.JdbcConnectionOptions;
import org.apache.flink.connector.jdbc.JdbcExecutionOptions;
import org.apache.flink.connector.jdbc.core.datastream.sink.JdbcSink;
import org.apache.flink.core.fs.Path;
import org.apache.flink.formats.avro.AvroWriters;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.sink.filesystem.OutputFileConfig;
import org.apache.flink.streaming.api.functions.sink.filesystem.bucketassigners.BasePathBucketAssigner;
import org.apache.flink.streaming.api.functions.sink.filesystem.rollingpolicies.OnCheckpointRollingPolicy;

/** The jobs of benchmarks/jobs/written_rows.py: KIND RECORDS PLACE CHECKPOINTS. */
public final class FlinkSinks {
    static final long KEYS = 100_000;
    static final long PRICE = 7_919;
    static final long PRICES = 100_000;
    static final long USERS = 1_000;

    public static final class Row {
        public long n;
        public long id;
        public String user;
        public long cents;
    }

    public static final class ToRow implements MapFunction<Long, Row> {
        @Override
        public Row map(Long n) {
            Row row = new Row();
            row.n = n;
            row.id = n % KEYS;
            row.user = "user " + n % USERS;
            row.cents = n * PRICE % PRICES;
            return row;
        }
    }

    static Sink<Row> files(String kind, String place) {
        OutputFileConfig names = OutputFileConfig.builder().withPartSuffix("." + kind).build();
        if (kind.equals("avro")) {
            return FileSink.<Row>forBulkFormat(new Path(place), AvroWriters.forReflectRecord(Row.class))
                    .withBucketAssigner(new BasePathBucketAssigner<>())
                    .withRollingPolicy(OnCheckpointRollingPolicy.build())
                    .withOutputFileConfig(names)
                    .build();
        }
        return FileSink.<Row>forRowFormat(new Path(place), (row, out) -> out.write(
                        ("{\"n\":" + row.n + ",\"id\":" + row.id + ",\"user\":\"" + row.user + "\",\"cents\":"
                                + row.cents + "}\n").getBytes(StandardCharsets.UTF_8)))
                .withBucketAssigner(new BasePathBucketAssigner<>())
                .withRollingPolicy(OnCheckpointRollingPolicy.build())
                .withOutputFileConfig(names)
                .build();
    }

    static Sink<Row> table(String kind, String place) {
        String insert = "INSERT INTO rows (n, id, \"user\", cents) VALUES (?, ?, ?, ?)";
        String upsert = insert + " ON CONFLICT (id) DO UPDATE SET n = EXCLUDED.n, \"user\" = EXCLUDED.\"user\","
                + " cents = EXCLUDED.cents";
        return JdbcSink.<Row>builder()
                .withQueryStatement(kind.equals("upsert") ? upsert : insert, (statement, row) -> {
                    statement.setLong(1, row.n);
                    statement.setLong(2, row.id);
                    statement.setString(3, row.user);
                    statement.setLong(4, row.cents);
                })
                .withExecutionOptions(JdbcExecutionOptions.builder()
                        .withBatchSize(10_000)
                        .withBatchIntervalMs(1_000)
                        .build())
                .buildAtLeastOnce(new JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
                        .withUrl(place)
                        .withDriverName("org.postgresql.Driver")
                        .withUsername("onceflow")
                        .build());
    }

    public static void main(String[] args) throws Exception {
        String kind = args[0];
        long records = Long.parseLong(args[1]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("execution.checkpointing.dir", args[3]);
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("parallelism.default", "1");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        boolean isTable = kind.equals("append") || kind.equals("upsert");
        env.fromSequence(0, records - 1)
                .map(new ToRow())
                .sinkTo(isTable ? table(kind, args[2]) : files(kind, args[2]));
        env.execute(kind);
    }
}
