# A stand-in for apicurio/apicurio-registry:3.3.3 where no image registry can be reached: the same program, from Maven,
# with a Java of its own that jlink made.
FROM python:3.11-slim-bookworm
COPY java /opt/java
COPY registry /opt/registry
RUN useradd --create-home registry
USER registry
WORKDIR /home/registry
ENV QUARKUS_HTTP_HOST=0.0.0.0
CMD ["/opt/java/bin/java", "-Xmx300m", "-XX:TieredStopAtLevel=1", "-jar", "/opt/registry/quarkus-run.jar"]
