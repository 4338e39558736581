"""Modules without a test file of their own name: which tests cover them, and why those are the right place.

A module is named by its last name, or by the last two where several share one.
"""

from __future__ import annotations

from tests.covered import Covered
from tests.covered_connectors import CONNECTORS

COVERED = (
    *CONNECTORS,
    Covered(
        "SQL, by whole queries",
        """unit/sql/test_statement unit/sql/test_sql_refusals properties/test_sql_expressions
        properties/test_sql_windows properties/test_sql_joins unit/sql/test_joins_in_sql""",
        """aggregate_calls arithmetic checks chosen_values comparing conversions entry grammar
        grouped_select join_conditions join_filters join_sides join_steps joined_names joined_tables
        joined_times literals logic number_functions places projections refused_joins refused_parts relations
        scalars selects sql_types text_functions time_functions time_bounds united_queries window_calls""",
    ),
    Covered(
        "what is remembered by key, in snapshots that build on each other too, and what may be declared",
        """properties/test_ttl properties/test_increments unit/operators/processing/test_key_memory
        unit/state/test_handles unit/state/rocks/test_rocks_overflow unit/state/heap/test_heap_limit""",
        """expiries accepted_values expiring_items overflow frozen_tiers rocks.backend row_sizes
        memory_share checkpoint.increments state.increments seen_rows rocks.away snapshot_options
        rocks_units grouped_table""",
    ),
    Covered(
        "another number of slots while a job runs",
        "simulation/test_rescaling integration/test_rescale",
        "folder_io",
    ),
    Covered(
        "state under other numbers of key groups", "properties/test_regrouped_state", "savepoints.regrouping"
    ),
    Covered(
        "going back to an older checkpoint",
        """unit/checkpoint/test_chosen_start unit/driver/test_committers
        unit/sinks/test_tables_go_back unit/connectors/files/written/test_taking_back""",
        """first_checkpoint written_spans earlier_version earlier_snapshot""",
    ),
    Covered("two dry runs are compared", "unit/cli/test_dry_run", "cli.compare"),
    Covered(
        "changes of a state in Spark",
        "unit/structured_streaming/test_state_source integration/test_state_tables",
        "state_changes",
    ),
    Covered("options, read for a run", "unit/driver/test_options unit/api/test_job", "run_options"),
    Covered(
        "state under other keys, and written anew",
        "properties/test_rekeyed_state unit/state_tables/test_writer",
        "state_tables.rekeyed merged_keys operator_rows",
    ),
    Covered(
        "state of reduces and windows, written anew",
        "unit/changed_programs/test_written_tables",
        "replaced_tables written_accumulators written_windows fitted_columns",
    ),
    Covered(
        "states that are called otherwise",
        "unit/changed_programs/test_renamed_states",
        "renamed_parts state_names",
    ),
    Covered("objects that are kept as pickles", "unit/state/test_object_codecs", "pickled_objects"),
    Covered(
        "objects as state by key",
        "properties/test_object_states unit/changed_programs/test_object_states",
        "kept_objects declared_state",
    ),
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
    Covered("a store that comes back says it", "integration/test_checkpoints_on_stores", "away_notice"),
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
        "integration/test_rabbitmq_queue integration/test_rabbitmq_kills",
        "rabbitmq.deliveries acknowledged.messages",
    ),
    Covered(
        "what reads a subscription of Pub/Sub, driven against Google's fake",
        "integration/test_pubsub integration/test_pubsub_kills",
        "subscription_calls pubsub.deliveries pubsub.messages",
    ),
    Covered(
        "what reads a port of NiFi, driven against a server that speaks its protocol",
        "integration/test_nifi integration/test_nifi_kills",
        "nifi.deliveries output_port",
    ),
    Covered(
        "what reads a stream of RabbitMQ, driven against a real one",
        "integration/test_rabbitmq_stream integration/test_rabbitmq_kills",
        "stream_consumer stream_enumerator stream_looks rabbitmq.stream_reader",
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
        "what becomes of records that can't be decoded, by all sources that decode",
        "unit/connectors/test_dead_letter_rule",
        "bad_records",
    ),
    Covered(
        "made-up events, judged as a whole",
        "unit/connectors/nexmark/test_source",
        "nexmark.columns nexmark.events numbering",
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
    Covered("state as tables", "unit/state_tables/test_reader", "shapes state_tables.listing stored_schemas"),
    Covered("queries", "unit/cli/test_query_server", "state_tables.client printed_values"),
    Covered("stores: one suite for all", "conformance/test_store", "memory_store store_url"),
    Covered(
        "what an older program wrote, from folders that it left",
        """unit/checkpoint/test_state_fits unit/changed_programs/test_changed_programs
        unit/changed_programs/test_golden_checkpoint""",
        "old_states state_comparison begun",
    ),
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
        "what a row goes through between two tasks",
        "unit/exchange/test_input_gate unit/slot/test_task unit/exchange/test_wiring",
        """channel channel_watermarks exchange.partition_kernels exchange.record_writer chain_body
        gates task_reports slot_tasks""",
    ),
    Covered(
        "how a job is described; what is made of it is compared with it",
        "unit/api/test_stream unit/graph/test_compile",
        """arguments graph.columns functions graph_builder built_in_sources job_graph keyed_stream
        keys_of_streams record_functions keyed_processes keyless_processes records_of_functions united_streams
        drafts needed_columns node_parts steps""",
    ),
    Covered(
        "processes: what they do when they are killed",
        "integration/test_kills integration/test_operating integration/test_spark_start",
        """barrier_stage driver.driver launch local slot slot.process slot.tasks slot_launches spark.daemon
        run_signals runner version""",
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
        """asked described_sides joined_columns key_numbers frozen_sides runs window_sides meetings equal_rows
        ordered_changes joined_rows rows_in_time versions window_rows window_pairs window_groups""",
    ),
    Covered(
        "objects of whole windows: what users see, and state against dictionaries",
        "unit/operators/processing/test_window_process properties/test_window_process",
        "window_processes fired_windows",
    ),
    Covered(
        "functions of two streams",
        "unit/api/test_connected_streams properties/test_co_process",
        "two_keys",
    ),
    Covered(
        "windows that change, or fire again, against naive lists, and in the simulation",
        """properties/test_spans simulation/test_spans unit/operators/test_session
        unit/operators/test_counting unit/operators/test_clock_windows unit/api/test_stream""",
        """firings new_spans span_operator heap_groups number_columns reduce_values windowed_stream by_clock
        count_operator span_rows spans_away ranks keyed_pane_operator sliding_operator""",
    ),
    Covered("functions of whole windows", "unit/api/test_window_functions", "processed"),
    Covered(
        "triggers against naive lists, and by example",
        "properties/test_triggers unit/operators/test_triggers simulation/test_triggers",
        """triggers.built_in triggers.own bounds built_in_triggers own_triggers row_trigger trigger_rules
        late_firings triggered_operator due_windows sent_results row_copies global_window""",
    ),
    Covered(
        "rules for every subtask: restarts, crashes, and what is refused",
        "unit/api/test_broadcast_streams",
        "processing.broadcast processing.broadcast_state processing.keyless_broadcast",
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
        retention_mutants sim_broker sim_driver sim_job sim_rows sim_sliding sim_slot sim_store sim_table
        sim_tally sim_world simulate shared_files violations world""",
    ),
    Covered(
        "short passages between two rooms, which every job goes through",
        "simulation/test_simulation unit/driver/test_options",
        "driver.graph_program control.commands cli.job_options launch_options slot.assignments",
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
        "questions to a job that runs, and what they are made of",
        "integration/test_live_queries unit/driver/test_live_questions",
        "live_query live_messages control.message",
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
        integration/test_structured_streaming_source_tasks unit/structured_streaming/test_sink_staging
        integration/test_state_tables""",
        """data_source partitions structured_streaming.options query_record read_plan register
        structured_streaming.sink structured_streaming.source source_rows source_stream source_tasks
        structured_streaming.staged_files structured_streaming.staging whole_writes sitecustomize
        shared_staging state_format state_sink""",
    ),
    Covered(
        "how any sink writes micro-batches: in a simulated Spark with crashes, and in a real one",
        "simulation/test_any_sink integration/test_structured_streaming_any_sink "
        "unit/structured_streaming/any_sink/test_write_options",
        """batch_commits batch_parts promised_batches sink_data_source sink_format any_sink.formats sink_tie
        any_sink.writers""",
    ),
    Covered(
        "sources as formats: planners, and what Spark does with them",
        """unit/connectors/files/test_batches integration/test_structured_streaming_any_source
        integration/test_postgres_cdc_batches""",
        """postgres_cdc.batches contracts.batches batch_reading any_source.source_format
        any_source.stream_reader files_form spark_limits option_texts source_data_source
        any_source.formats""",
    ),
)
