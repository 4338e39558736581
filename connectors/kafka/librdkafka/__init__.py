"""librdkafka's C interface, called directly, and its messages in columns."""
