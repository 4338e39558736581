#!/bin/sh
# Builds what docker/ takes from an image registry, under the same names, for machines that can reach Debian, PyPI and
# Maven but no registry. Needs root, debootstrap, and onceflow's environment for Kafka's jars.
#
#   sh docker/standins/build.sh python      python:3.11-slim-bookworm (Debian's Python 3.11)
#   sh docker/standins/build.sh kafka       apache/kafka:4.2.1 (the jars of the embedded broker)
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case ${1:?python or kafka} in
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
*)
    echo "python or kafka, not $1" >&2
    exit 2
    ;;
esac
