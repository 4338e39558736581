"""How a reader gets at records: one by one, out of librdkafka's buffers, or from the brokers directly."""
