"""Kafka's protocol, as far as it is spoken without librdkafka: requests, answers, connections."""
