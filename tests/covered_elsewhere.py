"""Modules without a test file of their own name: which tests cover them, and why those are the right place.

A module is named by its last name, or by the last two where several share one.
"""

from __future__ import annotations

from typing import NamedTuple


class Covered(NamedTuple):
    """Some modules, the tests in whose reach they are, and why they have none of their own."""

    why: str
    tests: str
    modules: str


COVERED = (
    Covered(
        "what is remembered by key, in snapshots that build on each other too, and what may be declared",
        """properties/test_ttl properties/test_increments unit/operators/processing/test_key_memory
        unit/state/test_handles unit/state/rocks/test_rocks_overflow unit/state/heap/test_heap_limit""",
        """expiries accepted_values expiring_items overflow frozen_tiers rocks.backend tight_state row_sizes
        memory_share checkpoint.increments state.increments seen_rows rocks.away snapshot_options""",
    ),
    Covered("options, read for a run", "unit/driver/test_options unit/api/test_job", "run_options"),
    Covered("changed types", "properties/test_schema_evolution", "conversion members readers restored"),
    Covered(
        "what an aggregate of the user's has to say of its types",
        "unit/operators/processing/test_combined_states unit/operators/test_user_aggregates",
        "returned_types",
    ),
    Covered(
        "the proof of a store, and the start from a savepoint, are what these drive",
        """unit/checkpoint/test_remote_store unit/changed_programs/test_savepoints simulation/test_pins
        integration/test_savepoints""",
        """create_proof savepoints.savepoint savepoints.folder savepoints.taking savepoints.copying
        savepoints.starting savepoints.deleting savepoints.exporting savepoints.lineage savepoints.difference
        start_notice cli.savepoint savepoint_texts interleaving""",
    ),
    Covered("a store that goes and comes back says it", "integration/test_checkpoints_on_s3", "away_notice"),
    Covered(
        "what is said of a damaged log is in the events of a job on that log",
        "unit/changed_programs/test_damaged_folder unit/checkpoint/test_io",
        "log_notices",
    ),
    Covered(
        "methods of Stream, driven through it",
        "unit/api/test_stream properties/test_new_event_times",
        "batch_functions stream_ends",
    ),
    Covered(
        "what an operator asks and makes of answers, driven through it; and what stands for threads in tests",
        "unit/operators/async_calls/test_async_operator simulation/test_async_calls",
        "functions.questions async_map sim_calls",
    ),
    Covered(
        "what a look-up join asks and makes, driven through it, and against real servers",
        "unit/api/test_lookups integration/test_lookups",
        "contracts.lookup postgres.lookup http_lookup function_lookup lookup_calls lookup_join",
    ),
    Covered(
        "methods of Stream, driven through it and its policies",
        "unit/api/test_stream unit/api/test_error_policies",
        "record_steps",
    ),
    Covered(
        "connections are what a reader's tests drive, against a real server",
        "unit/connectors/http_stream/test_reader integration/test_http_stream",
        "http_stream.connection",
    ),
    Covered(
        "what talks to a server, driven against a real one",
        "integration/test_postgres_cdc unit/connectors/postgres_cdc/test_log_rows",
        """postgres.conninfo postgres_cdc.enumerator postgres_cdc.reader postgres_cdc.settings
        postgres_cdc.stream
        server_checks table_rows""",
    ),
    Covered(
        "what reads a queue, driven against a real one",
        "integration/test_rabbitmq_queue integration/test_rabbitmq_queue_kills",
        "rabbitmq.deliveries acknowledged.messages acknowledged.reader",
    ),
    Covered(
        "what reads a stream of Kinesis, driven against servers that answer as it does",
        """integration/test_kinesis integration/test_kinesis_kills unit/connectors/kinesis/test_shards
        unit/connectors/kinesis/test_reader""",
        "kinesis.client kinesis.columns kinesis.enumerator kinesis.fetches finished_shards trimming",
    ),
    Covered(
        "what becomes of messages, by the readers of all that have them",
        "unit/connectors/http_stream/test_reader integration/test_kinesis integration/test_rabbitmq_queue",
        "message_rows",
    ),
    Covered(
        "made-up events, judged as a whole",
        "unit/connectors/nexmark/test_source",
        "nexmark.columns nexmark.events numbering",
    ),
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
        "staged_writer connectors.recovery connectors.waiting fake",
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
        embedded.settings fault_proxy registry.rules schema_texts""",
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
        "unit/connectors/collections/test_given_records conformance/test_collections",
        "fixed_splits plain_types python_rows",
    ),
    Covered(
        "formats of files: what their readers meet, and each cut anywhere",
        "unit/connectors/files/test_reader conformance/test_files conformance/test_file_sink",
        "packing csv_files file_format file_split finished_files json_lines parquet_files record_blocks",
    ),
    Covered(
        "parts of a file sink: a commit cut off at each call, kills, and what its options are refused for",
        "unit/connectors/files/written/test_commits unit/sinks/test_files integration/test_file_sink_kills",
        """buckets part written.plan renamed_store rolling open_store output_store uploaded_store
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
        postgres.settings postgres.target postgres.server_errors sinks.postgres two_phase""",
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
        """changes data_file file_names file_store grouping delta.columns delta_committer delta.settings
        opened_table delta.writer maintenance""",
    ),
    Covered(
        "Iceberg tables of a catalog in SQLite, read by DuckDB and pyiceberg, and kills inside commits",
        "unit/sinks/test_iceberg conformance/test_iceberg_sink integration/test_table_kills",
        """catalog_errors data_files iceberg.settings iceberg_committer iceberg_writer key_rewrite
        opened_iceberg partition_values snapshot_expiry""",
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
    # --- The runtime ---
    Covered(
        "parts of the coordinator, moved by the same events",
        """unit/checkpoint/test_coordinator unit/checkpoint/test_recovery unit/checkpoint/test_verdict
        simulation/test_simulation""",
        "effects checkpoint.events job_phase checkpoint.options pending stopping restart retention",
    ),
    Covered(
        "what the driver does with files",
        "unit/checkpoint/test_io unit/checkpoint/test_state_files simulation/test_damage",
        """copies doors checkpoint.driver io_thread log_view manifest verification state_paths
        checkpoint.staged_files""",
    ),
    Covered("stores: one suite for all", "conformance/test_store", "memory_store store_url"),
    Covered(
        "what an older program wrote, from folders that it left",
        """unit/checkpoint/test_state_fits unit/changed_programs/test_changed_programs
        unit/changed_programs/test_golden_checkpoint""",
        "old_states state_comparison begun",
    ),
    Covered("what `onceflow checkpoints` shows", "unit/cli/test_closing", "checkpoint.listing"),
    Covered(
        "contracts: types without logic",
        "conformance/test_simulated_connectors",
        """abilities json_values committer contracts.dead_letters contracts.sink contracts.source
        contracts.staging watermarks""",
    ),
    Covered(
        "both ends of one connection",
        "unit/control/test_server unit/exchange/test_transport",
        "control.client control.connection heartbeat remote_channel",
    ),
    Covered(
        "the way into a listener, and the certificate that is shown there",
        "unit/sockets/test_listener unit/sockets/test_credentials properties/test_strangers",
        "certificate sockets.connect",
    ),
    Covered(
        "what is told of an error: by what becomes of it",
        "unit/checkpoint/test_verdict unit/slot/test_call_watch unit/functions/test_context",
        "slot.failure",
    ),
    Covered(
        "what a row goes through between two tasks",
        "unit/exchange/test_input_gate unit/slot/test_task unit/exchange/test_wiring",
        """channel channel_watermarks exchange.partition_kernels exchange.record_writer chain_body
        gates task_reports slot_tasks""",
    ),
    Covered(
        "how a job is described; what is made of it is compared with it",
        "unit/api/test_stream unit/graph/test_compile",
        """arguments graph.columns functions graph_builder job_graph keyed_stream keys_of_streams
        record_functions keyed_processes records_of_functions united_streams drafts
        needed_columns node_parts steps""",
    ),
    Covered(
        "processes: what they do when they are killed",
        "integration/test_kills integration/test_operating integration/test_spark_start",
        """driver.driver launch local slot slot.process slot.tasks spark.daemon run_signals runner
        version""",
    ),
    Covered(
        "what only a cluster and a JVM can say, asked of a standalone Master",
        "integration/test_deployment integration/test_spark_cluster",
        "spark.cluster",
    ),
    Covered(
        "JVMs: the archive of their classes, and which Java is found",
        "integration/test_class_archive integration/test_embedded_kafka",
        "class_workload java",
    ),
    Covered(
        "types and constants that half of the tests use",
        "unit/types/test_records_and_columns unit/checkpoint/test_fingerprints",
        "clock errors records",
    ),
    Covered("kernels of one function", "unit/kernels/test_copying unit/kernels/test_text", "blocks memory"),
    Covered("a sort of one kernel", "unit/connectors/kafka/produce/test_partition_order", "counting_sort"),
    Covered(
        "windows against a naive list",
        "properties/test_windows unit/operators/test_window unit/operators/test_sliding",
        """aggregates pane_operator sums tumbling window_batch window_operator window_values accumulator
        accumulators firing_window typed_aggregates""",
    ),
    Covered(
        "joins against nested loops, as operators and as programs",
        """properties/test_interval_join properties/test_window_join properties/test_regular_join
        properties/test_temporal_join unit/api/test_joins unit/api/test_regular_joins""",
        """described_sides joined_columns key_numbers frozen_sides runs window_sides meetings equal_rows
        ordered_changes""",
    ),
    Covered(
        "functions of two streams",
        "unit/api/test_connected_streams properties/test_co_process",
        "co_functions two_keys",
    ),
    Covered(
        "windows that change, or fire again, against naive lists, and in the simulation",
        """properties/test_spans simulation/test_spans unit/operators/test_session
        unit/operators/test_counting unit/operators/test_clock_windows unit/api/test_stream""",
        """firings new_spans span_operator heap_groups number_columns reduce_values windowed_stream by_clock
        count_operator span_rows ranks""",
    ),
    Covered("functions of whole windows", "unit/api/test_window_functions", "processed"),
    Covered(
        "triggers against naive lists, and by example",
        "properties/test_triggers unit/operators/test_triggers simulation/test_triggers",
        """triggers.built_in triggers.own bounds built_in_triggers own_triggers row_trigger trigger_rules
        triggered_operator sent_results row_copies global_window""",
    ),
    Covered(
        "rules for every subtask: restarts, crashes, and what is refused",
        "unit/api/test_broadcast_streams",
        "processing.broadcast",
    ),
    Covered(
        "what operators share",
        "unit/operators/processing/test_process unit/operators/test_timers unit/operators/test_stateless",
        """describe declared state.timers assigners.session state.table operators.operator
        process_output timer_firing user_functions""",
    ),
    Covered(
        "what becomes of a record for which a function raises: each policy against a job without that record",
        "unit/api/test_error_policies unit/operators/test_stateless",
        "failed_records map_batches process_undo",
    ),
    Covered(
        "parts of the key index and of hashing, compared with plain ones",
        """properties/test_key_index properties/test_key_groups unit/state/test_hashing
        unit/state/test_cells""",
        """cell_kernels hash_arrays hash_constants hash_kernels index_kernels state.key_groups text_rows""",
    ),
    Covered(
        "state as it is kept and written",
        "unit/state/test_handles properties/test_columns unit/checkpoint/test_state_files",
        "operator_state values",
    ),
    Covered(
        "the heap's tables: one suite for any, and a dictionary beside them",
        "conformance/test_tables properties/test_keyed_table",
        "heap.frozen heap_panes heap_table row_values state.tables",
    ),
    Covered(
        "tests themselves: their mutants are the proof",
        "simulation/test_simulation simulation/test_damage conformance/test_simulated_connectors",
        """checkers choices checking overtaking_mutants
        conformance.committers conformance.sinks conformance.sources
        conformance.stores coordination faults firing_mutants harness mutants mutation pausing
        retention_mutants sim_broker sim_driver sim_job sim_rows sim_slot sim_store sim_table
        sim_tally sim_world simulate shared_files violations world""",
    ),
    Covered(
        "short passages between two rooms, which every job goes through",
        "simulation/test_simulation unit/driver/test_options",
        "driver.graph_program control.commands cli.job_options",
    ),
    Covered("the list of connectors by name", "unit/api/test_named_connectors", "cli.connectors"),
    Covered(
        "kits of connectors: each of their checks is shown a wrong connector, and right ones pass",
        "conformance/test_broken_connectors conformance/test_own_connectors",
        """changed_schemas crashes moved_splits played_engine quotations
        recorded_calls recoveries format_checks kit.formats kit.kit
        new_process kit.sinks kit.sources kit.stores shared_stores target_checks targets transactional""",
    ),
    Covered(
        "what a test of a user's job is made of",
        "unit/testing/test_job_run unit/testing/test_process_harness unit/testing/test_simulation",
        "kept_rows script scripted_source collecting_sink stage taps",
    ),
    Covered(
        "what a test on a real broker is made of, in a project of a user's",
        "integration/test_init",
        "background_job pytest_plugin testing.topic",
    ),
    # --- Commands and Structured Streaming ---
    Covered(
        "what a command prints, compared as it is printed, and a notebook shows",
        "unit/cli/test_plan unit/cli/test_report unit/api/test_notebook_display",
        "runtime.graph.plan runtime.report live_text reporter_here",
    ),
    Covered(
        "commands, as processes",
        "integration/test_operating integration/test_verify_command integration/test_broker_command",
        """app audit_topics cli.broker broker_consume broker_options broker_produce broker_topics cancel
        checkpoints list_jobs operate prepare registry_process registry_values run status verify""",
    ),
    Covered(
        "what Spark calls, in a Spark",
        """integration/test_structured_streaming_sink integration/test_structured_streaming_source
        integration/test_structured_streaming_source_tasks unit/structured_streaming/test_sink_staging""",
        """data_source partitions structured_streaming.options query_record read_plan register
        structured_streaming.sink structured_streaming.source source_rows source_stream source_tasks
        structured_streaming.staged_files structured_streaming.staging whole_writes sitecustomize
        shared_staging""",
    ),
    Covered(
        "how any sink writes micro-batches: in a simulated Spark with crashes, and in a real one",
        "simulation/test_any_sink integration/test_structured_streaming_any_sink "
        "unit/structured_streaming/any_sink/test_write_options",
        """batch_commits batch_parts promised_batches sink_data_source sink_format any_sink.formats sink_tie
        any_sink.writers""",
    ),
)
