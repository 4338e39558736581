# A stand-in for apache/kafka where no image registry can be reached: the same Kafka, from Maven's jars in jars/.
# It keeps the part of that image's contract which compose.yaml needs: settings from KAFKA_* variables.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY jars /opt/kafka/libs
COPY kafka.sh /opt/kafka/run.sh
RUN useradd --create-home appuser \
    && mkdir -p /var/lib/kafka/data /opt/kafka/config /mnt/shared/config \
    && chown -R appuser /var/lib/kafka /opt/kafka/config
ENV CLUSTER_ID=5L6g3nShT-eMCtK--X86sw KAFKA_LOG_DIRS=/var/lib/kafka/data
USER appuser
CMD ["sh", "/opt/kafka/run.sh"]
