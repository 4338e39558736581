#!/bin/sh
# Says in one sentence what to do if there is no Java that Spark and Kafka run on. Needs nothing installed.
set -u

java="${JAVA_HOME:+$JAVA_HOME/bin/}java"
found=$("$java" -version 2>&1 | sed -n 's/.*version "\([^"]*\)".*/\1/p' | head -n 1)
major=${found#1.}
major=${major%%[!0-9]*}
if [ "${major:-0}" -ge 17 ]; then
    exit 0
fi
echo "Java 17 or newer is needed, and ${found:-none} was found: install it with" \
    "'sudo apt install openjdk-17-jre-headless' (Debian, Ubuntu)," \
    "'sudo dnf install java-latest-openjdk-headless' (Fedora) or 'brew install openjdk@21' (macOS)," \
    "or point JAVA_HOME to it." >&2
exit 1
