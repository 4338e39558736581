import java.time.Duration;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.AggregateFunction;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.co.ProcessJoinFunction;
import org.apache.flink.streaming.api.functions.sink.v2.DiscardingSink;
import org.apache.flink.streaming.api.windowing.assigners.EventTimeSessionWindows;
import org.apache.flink.streaming.api.windowing.assigners.SlidingEventTimeWindows;
import org.apache.flink.streaming.api.windowing.assigners.TumblingEventTimeWindows;
import org.apache.flink.util.Collector;

/** The jobs of benchmarks/jobs/windows_and_joins.py: KIND KEYS RECORDS CHECKPOINTS. */
public final class FlinkWindowsAndJoins {
    static final long PRIME = 2_147_483_647L;
    static final int PANES = 10;
    static long found;
    static long total;

    public static final class Row {
        public long n;
        public long key;
        public long value;
    }

    public static final class ToRow implements MapFunction<Long, Row> {
        private final long factor;
        private final long keys;

        ToRow(long factor, long keys) {
            this.factor = factor;
            this.keys = keys;
        }

        @Override
        public Row map(Long n) {
            Row row = new Row();
            long mixed = n * factor % PRIME;
            row.n = n;
            row.key = mixed * mixed % PRIME * factor % PRIME % keys;
            row.value = n % 1_000;
            return row;
        }
    }

    public static final class Sums {
        public long count;
        public long total;
    }

    public static final class Totals implements AggregateFunction<Row, Sums, Long> {
        @Override
        public Sums createAccumulator() {
            return new Sums();
        }

        @Override
        public Sums add(Row row, Sums sums) {
            sums.count++;
            sums.total += row.value;
            return sums;
        }

        @Override
        public Long getResult(Sums sums) {
            return sums.total;
        }

        @Override
        public Sums merge(Sums one, Sums other) {
            one.count += other.count;
            one.total += other.total;
            return one;
        }
    }

    public static final class Pairs extends ProcessJoinFunction<Row, Row, Long> {
        @Override
        public void processElement(Row left, Row right, Context context, Collector<Long> out) {
            out.collect(left.value + right.value);
        }
    }

    static DataStream<Row> rows(StreamExecutionEnvironment env, long factor, long keys, long records) {
        return env.fromSequence(0, records - 1)
                .assignTimestampsAndWatermarks(WatermarkStrategy.<Long>forMonotonousTimestamps()
                        .withTimestampAssigner((n, timestamp) -> n))
                .map(new ToRow(factor, keys));
    }

    public static void main(String[] args) throws Exception {
        String kind = args[0];
        long keys = Long.parseLong(args[1]);
        long records = Long.parseLong(args[2]);
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("execution.checkpointing.dir", args[3]);
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("parallelism.default", "1");
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment(configuration);
        DataStream<Long> result;
        if (kind.endsWith("join")) {
            DataStream<Row> left = rows(env, 48_271, keys, records / 2);
            DataStream<Row> right = rows(env, 69_621, keys, records / 2);
            result = kind.equals("interval_join")
                    ? left.keyBy(row -> row.key)
                            .intervalJoin(right.keyBy(row -> row.key))
                            .between(Duration.ofMillis(-(keys / 2)), Duration.ofMillis(keys / 2))
                            .process(new Pairs())
                    : left.join(right)
                            .where(row -> row.key)
                            .equalTo(row -> row.key)
                            .window(TumblingEventTimeWindows.of(Duration.ofMillis(keys)))
                            .apply((one, other) -> one.value + other.value,
                                    org.apache.flink.api.common.typeinfo.Types.LONG);
        } else {
            var keyed = rows(env, 48_271, keys, records).keyBy(row -> row.key);
            result = kind.equals("session")
                    ? keyed.window(EventTimeSessionWindows.withGap(Duration.ofMillis(2 * keys)))
                            .aggregate(new Totals())
                    : keyed.window(SlidingEventTimeWindows.of(
                                    Duration.ofMillis(PANES * keys), Duration.ofMillis(keys)))
                            .aggregate(new Totals());
        }
        result.map(new MapFunction<Long, Long>() {
            @Override
            public Long map(Long value) {
                found++;
                total += value;
                return value;
            }
        }).sinkTo(new DiscardingSink<>());
        env.execute(kind);
        System.out.println("found " + found + " " + total);
    }
}
