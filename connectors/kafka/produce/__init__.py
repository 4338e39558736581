"""How records reach the brokers: through librdkafka or directly; and which partition each goes to."""
