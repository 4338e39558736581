"""The stateful runtime. Knows streams, state, time and checkpoints; knows no broker and no sink."""
