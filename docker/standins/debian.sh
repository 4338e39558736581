#!/bin/sh
# Becomes the server that is installed; its arguments are the server's.
set -eu
if command -v mariadbd >/dev/null; then
    data=/var/lib/mysql
    # Debian's package has made one when it was installed, of whose settings nothing is known here.
    if [ ! -e $data/.by-run-sh ]; then
        rm -rf $data
        mariadb-install-db --no-defaults --user=mysql --datadir=$data --auth-root-authentication-method=normal >/dev/null
        touch $data/.by-run-sh
    fi
    echo "CREATE DATABASE IF NOT EXISTS $MARIADB_DATABASE;" >/tmp/database.sql
    mariadbd --no-defaults --user=mysql --datadir=$data --bootstrap </tmp/database.sql
    exec mariadbd --no-defaults --user=mysql --datadir=$data --socket=/tmp/socket --bind-address=0.0.0.0 "$@"
elif command -v rabbitmq-server >/dev/null; then
    exec setpriv --reuid=rabbitmq --regid=rabbitmq --clear-groups env HOME=/var/lib/rabbitmq \
        /usr/lib/rabbitmq/bin/rabbitmq-server
else
    [ "${1:-}" != redis-server ] || shift
    exec redis-server "$@"
fi
