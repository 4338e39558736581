import org.apache.flink.configuration.Configuration;
import org.apache.flink.table.api.EnvironmentSettings;
import org.apache.flink.table.api.TableEnvironment;

/** The same in Flink SQL: a window table-valued function over a table on the topic. */
public final class FlinkSqlTotals {
    public static void main(String[] args) throws Exception {
        String servers = args[0];
        String input = args[1];
        String output = args[2];
        Configuration configuration = new Configuration();
        configuration.setString("execution.checkpointing.interval", "1 s");
        configuration.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        configuration.setString("execution.checkpointing.dir", args[3]);
        configuration.setString("state.backend.type", "hashmap");
        configuration.setString("pipeline.object-reuse", "true");
        configuration.setString("parallelism.default", args[4]);
        TableEnvironment table = TableEnvironment.create(
                EnvironmentSettings.newInstance().inStreamingMode().withConfiguration(configuration).build());
        table.executeSql("""
                CREATE TABLE purchases (
                  `user` STRING, amount BIGINT, ts BIGINT,
                  happened AS TO_TIMESTAMP_LTZ(ts, 3),
                  WATERMARK FOR happened AS happened - INTERVAL '2' SECOND
                ) WITH (
                  'connector' = 'kafka', 'topic' = '%s', 'properties.bootstrap.servers' = '%s',
                  'properties.group.id' = 'bench-%s', 'scan.startup.mode' = 'earliest-offset',
                  'properties.max.poll.records' = '10000', 'properties.fetch.max.bytes' = '8388608',
                  'properties.max.partition.fetch.bytes' = '8388608', 'format' = 'json')
                """.formatted(input, servers, output));
        table.executeSql("""
                CREATE TABLE totals (`user` STRING, window_end BIGINT, `count` BIGINT, total BIGINT) WITH (
                  'connector' = 'kafka', 'topic' = '%s', 'properties.bootstrap.servers' = '%s',
                  'key.format' = 'raw', 'key.fields' = 'user', 'value.format' = 'json',
                  'sink.delivery-guarantee' = 'exactly-once', 'sink.transactional-id-prefix' = '%s',
                  'properties.transaction.timeout.ms' = '600000', 'properties.linger.ms' = '20',
                  'properties.batch.size' = '262144')
                """.formatted(output, servers, output));
        table.executeSql("""
                INSERT INTO totals
                SELECT `user`, UNIX_TIMESTAMP(CAST(window_end AS STRING)) * 1000, COUNT(*), SUM(amount)
                FROM TUMBLE(TABLE purchases, DESCRIPTOR(happened), INTERVAL '10' SECOND)
                GROUP BY `user`, window_start, window_end
                """).await();
    }
}
