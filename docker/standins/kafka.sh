#!/bin/sh
# Makes Kafka's properties of the KAFKA_* variables, formats the storage if it is new, and becomes the broker.
set -euf
cd /opt/kafka
mkdir -p config/default config/final
no_defaults() { # which the wrapper merges with the variables
    : > config/default/server.properties
    : > config/default/log4j2.yaml
    : > config/default/tools-log4j2.yaml
}
no_defaults
java -cp '/opt/kafka/libs/*' kafka.docker.KafkaDockerWrapper setup \
    --default-configs-dir config/default \
    --mounted-configs-dir /mnt/shared/config \
    --final-configs-dir config/final >setup.log 2>&1 ||
    grep -q "already formatted" setup.log || {
    cat setup.log >&2
    exit 1
}
exec java -Xmx512m -cp '/opt/kafka/libs/*' kafka.Kafka config/final/server.properties
