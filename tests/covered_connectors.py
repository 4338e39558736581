"""Modules of connectors without a test file of their own name: see `covered_elsewhere.py`."""

from __future__ import annotations

from tests.covered import Covered

CONNECTORS = (
    # --- Formats ---
    Covered(
        "ways inside one decoder and one encoder, all driven against a plain reference",
        "properties/test_avro_format unit/connectors/formats/avro/test_format",
        """avro.arrays avro.byte_pieces avro.cells avro.column_walk avro.compiled.datum_kernels
        avro.compiled.decode avro.compiled.encode avro.decode avro.encode avro.lanes avro.plan avro.rows
        avro.schema.derived avro.schema.nodes avro.schema.target
        registry.wire_format""",
    ),
    Covered(
        "ways inside one decoder and one encoder, all driven against Google's library and Confluent's",
        "properties/test_protobuf_format unit/connectors/formats/protobuf/test_format",
        """protobuf.decode protobuf.encode protobuf.fields protobuf.framing protobuf.message_type
        protobuf.read protobuf.write protobuf.written_values""",
    ),
    Covered(
        "the options of a registry mean the same in each format that has them",
        "unit/connectors/formats/avro/test_format unit/connectors/formats/protobuf/test_format",
        "registry.options registry.schemas",
    ),
    Covered(
        "the schema that is compared with, driven through the format and against another library",
        "unit/connectors/formats/json/test_registered",
        "schema_checks",
    ),
    Covered(
        "types of the user's: one table of all, through columns, JSON, Avro, state and keys",
        """conformance/test_types unit/types/test_encoding unit/types/test_declared_fields
        unit/connectors/formats/json/test_arrow_values""",
        """annotations collection_types decoding hints single_types value_types json.structs
        json.written_values""",
    ),
    Covered("which kinds of values a column takes", "properties/test_field_kinds", "kinds_taken"),
    Covered(
        "ways inside one decoder and one encoder, all driven against Python's json",
        """properties/test_json_format properties/test_json_flat_encoder
        unit/connectors/formats/json/test_format unit/connectors/formats/json/test_bulk""",
        """formats.format json.compiled.columns json.compiled.encode json.compiled.row_kernels
        json.compiled.skip_kernels json.compiled.value_kernels json.compiled.write_kernels json.encode
        json.strict""",
    ),
    Covered(
        "lists of what to compile before a job begins: that nothing is missing is one test for all",
        "unit/kernels/test_preparation unit/state/test_rows",
        """formats.kernel_preparation librdkafka.kernel_preparation produce.kernel_preparation
        records.kernel_preparation exchange.kernel_preparation""",
    ),
    # --- Kafka ---
    Covered(
        "what a fetch is made of: all ways must bring the same of a real broker's hostile topics",
        """integration/kafka_source/test_fetchers integration/kafka_source/test_direct_fetch
        unit/connectors/kafka/fetch/test_backlog unit/connectors/kafka/librdkafka/test_message_kernels""",
        """broker_lanes fetch.choose direct_reading fetched fetch.lane lane_opener librdkafka_queue
        message_columns per_message""",
    ),
    Covered(
        "readers of record batches, whose bytes are made by another implementation",
        "unit/connectors/kafka/records/test_read_columns",
        "compression read_header_kernels read_kernels section",
    ),
    Covered(
        "writers of record batches, which that reader reads",
        "unit/connectors/kafka/records/test_batch_writer",
        "records.record_writer records.write_kernels constant_columns",
    ),
    Covered(
        "the source as the engine drives it, on a real broker",
        """integration/kafka_source/test_kafka_source_replay
        integration/kafka_source/test_kafka_source_changes integration/kafka_source/test_truncation
        unit/connectors/kafka/source/test_source""",
        "source.reader reader_options reader_splits row_builder split starts topic_watch source.dead_letters",
    ),
    Covered("clients beside a dead broker", "integration/test_dead_broker", "who_is_there"),
    Covered(
        "transactions of a real broker, each way to write them",
        """integration/test_kafka_produce_routes integration/test_direct_produce
        integration/test_kafka_batch_sizes unit/connectors/kafka/produce/test_direct
        unit/connectors/kafka/transactions/test_producer unit/connectors/kafka/transactions/test_throttle""",
        """batch_limit calls kafka.client cuts enlisting leaders librdkafka_batches librdkafka_client
        per_record pipelined_connection producer_settings reasons""",
    ),
    Covered(
        "the staged protocol, with crashes at every call",
        """simulation/test_transactions conformance/test_kafka_staged
        unit/connectors/kafka/transactions/test_staged_file""",
        "staged_writer sink_topics turns connectors.recovery connectors.waiting fake fake_broker",
    ),
    Covered(
        "prepared transactions, with crashes at every call, and by SIGKILL on a real broker",
        """simulation/test_prepared_transactions integration/test_kafka_two_phase
        conformance/test_kafka_staged""",
        "prepared_epoch prepared_owner prepared_writer changed_sink",
    ),
    Covered(
        "rows of a sink as records of its topics",
        "unit/sinks/test_kafka_sink unit/sinks/test_kafka_topics unit/sinks/test_gathering",
        "kafka.transactions.sink_writer",
    ),
    Covered(
        "it looks for transactions that hang, which only a real broker has",
        "integration/test_kafka_sink_hanging integration/test_dead_broker",
        "hanging",
    ),
    Covered(
        "the broker of the tests: one that does not do what it says fails them",
        """integration/test_embedded_kafka integration/test_kafka_formatting integration/test_three_brokers
        unit/connectors/kafka/embedded/registry/test_requests""",
        """embedded.broker embedded.cluster embedded.formatting embedded.jars embedded.ports embedded.process
        embedded.settings embedded.topics fault_proxy registry.rules schema_texts""",
    ),
    Covered(
        "a socket to a broker", "unit/connectors/kafka/protocol/test_polling_connection", "broker_socket"
    ),
    Covered(
        "choice of partitions", "unit/connectors/kafka/produce/test_partitioner", "produce.partition_kernels"
    ),
    Covered(
        "the sink's options and rows; what it writes is the protocol's", "unit/sinks/test_kafka_sink", "kafka"
    ),
    # --- Files, and what a program has itself ---
    Covered(
        "records of a program as columns, and their one split",
        """unit/connectors/collections/test_given_records conformance/test_collections
        unit/connectors/collections/test_all_types""",
        "fixed_splits plain_types python_rows records_of_dicts made_up_values",
    ),
    Covered(
        "formats of files: what their readers meet, and each cut anywhere",
        """unit/connectors/files/test_reader unit/connectors/files/test_avro_files conformance/test_files
        conformance/test_file_sink""",
        """packing avro_blocks csv_files csv_cells file_format file_split finished_files json_lines
        parquet_files record_blocks""",
    ),
    Covered(
        "parts of a file sink: a commit cut off at each call, kills, and what its options are refused for",
        "unit/connectors/files/written/test_commits unit/sinks/test_files integration/test_file_sink_kills",
        """buckets part written.plan renamed_store rolling open_store output_store
        uploads written.writer""",
    ),
    Covered(
        "a sink whose ledger is in the system that it writes to: crashes at every call",
        "simulation/test_staged_commits integration/test_postgres_sink",
        """staged_commits.owner staged_kinds staged_commits.target
        staged_commits.writer""",
    ),
    Covered(
        "PostgreSQL, on a real server",
        "integration/test_postgres_sink integration/test_postgres_kills integration/test_postgres_two_phase",
        """postgres.bad_rows postgres.catalog postgres.columns postgres.ledger postgres.rows postgres.session
        postgres.settings postgres.target sinks.postgres two_phase""",
    ),
    Covered(
        "what sinks on SQL databases share, on two real servers",
        "integration/test_postgres_sink integration/test_mysql_sink",
        """careful json_texts ledger_owner sql_tables.options sql_tables.session sql_tables.table
        sql_tables.target""",
    ),
    Covered(
        "MySQL, on a real MariaDB",
        "integration/test_mysql_sink integration/test_mysql_fencing integration/test_mysql_kills",
        """mysql.bad_rows mysql.catalog mysql.columns mysql.ledger mysql.session mysql.settings
        sinks.mysql statements""",
    ),
    Covered(
        "the last row of each key, in the pieces that are made of it and in a merge",
        "unit/connectors/versioned_upserts/test_last_rows integration/test_mysql_sink",
        "last_of_each_key",
    ),
    Covered(
        "upserts into a store without transactions: crashes at every call, and a real one",
        "simulation/test_versioned_upserts integration/test_redis_sink",
        "versioned_upserts.backend documents versioned_upserts.target versioned_upserts.writers",
    ),
    Covered(
        "Redis, on a real server",
        "integration/test_redis_sink integration/test_redis_kills",
        "redis.backend key_values sinks.redis",
    ),
    Covered(
        "OpenSearch and Cassandra, on real servers",
        "integration/test_opensearch_sink integration/test_opensearch_kills integration/test_cassandra_sink",
        "opensearch.backend cassandra.backend servers",
    ),
    Covered(
        "requests to a receiver, on a little server of our own",
        "unit/sinks/test_http integration/test_http_sink_kills",
        "webhooks.target",
    ),
    Covered("headers of requests", "unit/connectors/opensearch/test_client", "http_headers"),
    Covered(
        "Delta tables on this disk, read by DuckDB, and kills inside commits",
        "unit/sinks/test_delta conformance/test_delta_sink integration/test_table_kills",
        """data_file file_names file_store grouping delta.columns delta_committer delta.settings
        opened_table delta.writer maintenance""",
    ),
    Covered(
        "Delta tables as a source, by the suite of sources, and killed before a topic",
        "conformance/test_delta_source integration/test_hybrid",
        "delta.source table_files file_constants",
    ),
    Covered(
        "Iceberg tables of a catalog in SQLite, read by DuckDB and pyiceberg, and kills inside commits",
        "unit/sinks/test_iceberg conformance/test_iceberg_sink integration/test_table_kills",
        """catalog_errors data_files iceberg.settings iceberg_committer iceberg_writer key_rewrite
        iceberg_ledger opened_iceberg partition_values iceberg_upkeep branch_swap""",
    ),
    Covered(
        "handing rows on in the driver: one suite for what is printed and what is collected",
        "conformance/test_handed_over unit/sinks/test_collect",
        "hand_over collected",
    ),
    Covered(
        "what a function is told, how a run has ended, and a Spark that is there before the job",
        "unit/sinks/test_foreach unit/api/test_job integration/test_first_job",
        "batch_context result submitted checkpoint_folder",
    ),
)
