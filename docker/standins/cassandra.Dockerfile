# A stand-in for cassandra:5.0 where no image registry can be reached: the same program, from Maven's jars in jars/. It keeps
# the part of that image's contract which the tests need: memory and options of Java from variables.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*
COPY jars /opt/cassandra
COPY java.options /opt/java.options
RUN useradd --create-home cassandra && mkdir /var/lib/cassandra && chown cassandra /var/lib/cassandra
USER cassandra
CMD exec java -cp "/opt/cassandra/*" @/opt/java.options -Xms$MAX_HEAP_SIZE -Xmx$MAX_HEAP_SIZE $JVM_EXTRA_OPTS \
    -Dcassandra.storagedir=/var/lib/cassandra -Dcassandra-foreground=yes org.apache.cassandra.service.CassandraDaemon
