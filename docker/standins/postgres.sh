#!/bin/sh
# Makes a cluster of databases of the POSTGRES_* variables if there is none, and becomes the server. Its arguments are
# those of the server, behind the word "postgres", as those of the image that this stands in for.
set -eu
[ "${1:-}" != postgres ] || shift
host_auth=${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    printf '%s' "${POSTGRES_PASSWORD:-none}" >/tmp/password
    initdb --username="$POSTGRES_USER" --pwfile=/tmp/password --auth-host="$host_auth" --auth-local=trust --encoding=UTF8
    rm /tmp/password
    echo "host all all all $host_auth" >>"$PGDATA/pg_hba.conf"
    pg_ctl -w start -o "-c listen_addresses= -k /tmp"
    [ "$POSTGRES_DB" = postgres ] || createdb -h /tmp -U "$POSTGRES_USER" "$POSTGRES_DB"
    pg_ctl -w stop
fi
exec postgres -c listen_addresses='*' -k /tmp "$@"
