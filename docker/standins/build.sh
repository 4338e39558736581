#!/bin/sh
# Builds what docker/ takes from an image registry, under the same names, for machines that can reach Debian, PyPI and
# Maven but no registry. Needs root, debootstrap, and onceflow's environment for Kafka's jars; the others rest on python.
#
#   sh docker/standins/build.sh python      python:3.11-slim-bookworm (Debian's Python 3.11)
#   sh docker/standins/build.sh kafka       apache/kafka:4.2.1 (the jars of the embedded broker)
#   sh docker/standins/build.sh postgres    postgres:15 (Debian's PostgreSQL)
#   sh docker/standins/build.sh registry    apicurio/apicurio-registry:3.3.3 (from Maven; JAVA_HOME is a JDK 21 or newer)
#   sh docker/standins/build.sh s3          versity/versitygw:v1.8.0 (its source, by Go)
#   sh docker/standins/build.sh redis       redis:7 (Debian's Redis); likewise mariadb (mariadb:10.11) and rabbitmq (rabbitmq:3.10)
#   sh docker/standins/build.sh cassandra   cassandra:5.0 (the jars of the tests)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case ${1:?python, kafka, postgres, registry, s3, redis, mariadb, rabbitmq or cassandra} in
python)
    root=$work/root
    packages=python3,python3-pip,python3-venv,ca-certificates
    debootstrap --variant=minbase --include=$packages bookworm "$root" >&2
    rm -f "$root"/usr/lib/python3*/EXTERNALLY-MANAGED "$root"/var/cache/apt/archives/*.deb
    ln -s /usr/bin/python3 "$root/usr/local/bin/python"
    # What this machine trusts, a proxy's certificate for instance, its images have to trust as well.
    cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
    printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
    tar -C "$root" -c . | docker import --change 'CMD ["python"]' - python:3.11-slim-bookworm
    ;;
kafka)
    cp "$here/kafka.Dockerfile" "$here/kafka.sh" "$work"
    mkdir "$work/jars"
    "${PYTHON:-.venv/bin/python}" - "$work/jars" <<'PYTHON'
import shutil, sys
from onceflow.connectors.kafka.embedded.jars import PINNED_VERSION, JarCache
from onceflow.runtime.environment.java import find_java

for jar in JarCache().jars(PINNED_VERSION, find_java()):
    shutil.copy(jar, sys.argv[1])
PYTHON
    docker build --network host -f "$work/kafka.Dockerfile" -t apache/kafka:4.2.1 "$work"
    ;;
postgres)
    cp "$here/postgres.Dockerfile" "$here/postgres.sh" "$work"
    docker build --network host -f "$work/postgres.Dockerfile" -t postgres:15 "$work"
    ;;
registry)
    cp "$here/registry.Dockerfile" "$work"
    mkdir "$work/registry"
    app=io/apicurio/apicurio-registry-app/3.3.3/apicurio-registry-app-3.3.3-all.tar.gz
    curl -fsSL "${ONCEFLOW_MAVEN_MIRROR:-https://repo1.maven.org/maven2/}$app" -o "$work/all.tar.gz"
    tar -xzf "$work/all.tar.gz" -C "$work/registry"
    modules=java.se,jdk.unsupported,jdk.crypto.ec,jdk.naming.dns,jdk.zipfs,jdk.management,jdk.localedata,jdk.charsets
    "${JAVA_HOME:?a JDK 21 or newer}/bin/jlink" --add-modules $modules --strip-debug --no-header-files --no-man-pages \
        --output "$work/java"
    docker build -f "$work/registry.Dockerfile" -t apicurio/apicurio-registry:3.3.3 "$work"
    ;;
s3)
    mkdir "$work/root"
    CGO_ENABLED=0 GOBIN="$work/root" go install github.com/versity/versitygw/cmd/versitygw@v1.8.0
    tar -C "$work/root" -c . | docker import --change 'ENTRYPOINT ["/versitygw"]' - versity/versitygw:v1.8.0
    ;;
redis | mariadb | rabbitmq)
    case $1 in redis) tag=7 ;; mariadb) tag=10.11 ;; rabbitmq) tag=3.10 ;; esac
    cp "$here/debian.Dockerfile" "$here/debian.sh" "$work"
    docker build --network host --build-arg "PACKAGE=$1-server" -f "$work/debian.Dockerfile" -t "$1:$tag" "$work"
    ;;
cassandra)
    cp "$here/cassandra.Dockerfile" "$work"
    mkdir "$work/jars"
    PYTHONPATH=$here/../.. "${PYTHON:-.venv/bin/python}" - "$work" <<'PYTHON'
import shutil, sys
from pathlib import Path
from tests.cassandra_server import REACHED, CassandraServer
from tests.java_server import jars_of

for jar in jars_of(CassandraServer.program)[1]:
    shutil.copy(jar, Path(sys.argv[1], "jars"))
reached = [f"--add-{how}={name}=ALL-UNNAMED" for how in ("opens", "exports") for name in REACHED.split()]
options = [*reached, "-XX:+UseSerialGC", "-Djdk.attach.allowAttachSelf=true"]
Path(sys.argv[1], "java.options").write_text("\n".join(options))
PYTHON
    docker build --network host -f "$work/cassandra.Dockerfile" -t cassandra:5.0 "$work"
    ;;
*)
    echo "python, kafka, postgres, registry, s3, redis, mariadb, rabbitmq or cassandra, not $1" >&2
    exit 2
    ;;
esac
