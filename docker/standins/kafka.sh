#!/bin/sh
# Makes Kafka's properties of the KAFKA_* variables, formats the storage if it is new, and becomes the broker.
set -euf
cd /opt/kafka
mkdir -p config/default config/final
# The wrapper merges the variables with defaults: none are needed here.
for name in server.properties log4j2.yaml tools-log4j2.yaml; do
    : >config/default/$name
done
java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir config/default \
    --mounted-configs-dir /mnt/shared/config \
    --final-configs-dir config/final >/tmp/setup.log 2>&1 ||
    grep -q "already formatted" /tmp/setup.log || {
    cat /tmp/setup.log >&2
    exit 1
}
exec java -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka config/final/server.properties
