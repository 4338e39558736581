# A Spark executor (and master, and driver) with onceflow and its compiled dependencies.
#
#   docker build -f docker/executor.Dockerfile -t onceflow-executor .
#
# PySpark brings Spark itself, so both are of one version. Driver and executors compare onceflow's version when a job
# starts. Written, not yet built: the machines that it was written on have no container engine.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY onceflow/__init__.py onceflow/py.typed onceflow/
COPY onceflow/cli onceflow/cli
COPY connectors connectors
COPY runtime runtime
COPY sinks sinks
RUN pip install --no-cache-dir . \
    && ln -s "$(python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')" /opt/spark

ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=python3
RUN useradd --create-home onceflow && mkdir /checkpoints && chown onceflow /checkpoints
USER onceflow
WORKDIR /home/onceflow
ENTRYPOINT ["tini", "--"]
CMD ["onceflow", "--help"]
