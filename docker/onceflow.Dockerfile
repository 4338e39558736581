# onceflow with all that it needs: a driver, a Spark master, worker or executor, and an embedded broker.
#
#   docker build -f docker/onceflow.Dockerfile -t onceflow .
#   docker run --rm onceflow onceflow --version
#
# PySpark brings Spark itself, so that both are of one version; driver and executors compare onceflow's version when a
# job starts. tests/integration/test_containers.py builds this image and runs a job in it.
FROM python:3.11-slim-bookworm

# Only for builds behind a proxy of their own: its index and certificates come with the base image or by these.
ARG PIP_INDEX_URL
ARG PIP_CERT

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps tini \
    && rm -rf /var/lib/apt/lists/*

# What onceflow needs changes seldom, and is a layer of its own.
ARG EXTRAS=avro,postgres,queries,rocksdb,s3
COPY pyproject.toml /src/
RUN python -c "import tomllib; p = tomllib.load(open('/src/pyproject.toml', 'rb'))['project']; \
        extras = [p['optional-dependencies'][name] for name in '$EXTRAS'.split(',')]; \
        print('\n'.join(sum(extras, p['dependencies'])))" > /src/needed.txt \
    && python -m pip install --no-cache-dir -r /src/needed.txt
COPY . /src
RUN python -m pip install --no-cache-dir "/src[$EXTRAS]" \
    && rm -rf /src \
    && ln -s "$(python -c 'import pyspark, pathlib; print(pathlib.Path(pyspark.__file__).parent)')" /opt/spark

ENV SPARK_HOME=/opt/spark PYSPARK_PYTHON=python3
RUN useradd --create-home onceflow && mkdir /checkpoints && chown onceflow /checkpoints
USER onceflow
WORKDIR /home/onceflow
# Kernels and Spark's classes: each container would make them anew.
RUN onceflow prepare
# Spark's own place for what a worker keeps is among the packages, where this user may not write.
ENV SPARK_WORKER_DIR=/tmp/spark-work
ENTRYPOINT ["tini", "--"]
CMD ["onceflow", "--help"]
