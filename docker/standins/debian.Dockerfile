# A stand-in for redis, mariadb or rabbitmq where no image registry can be reached: Debian's package. It keeps the part
# of the image's contract which the tests need (tests/server_container.py).
FROM python:3.11-slim-bookworm
ARG PACKAGE
RUN apt-get update \
    && apt-get install --yes --no-install-recommends $PACKAGE \
    && rm -rf /var/lib/apt/lists/*
COPY debian.sh /run.sh
WORKDIR /data
ENTRYPOINT ["sh", "/run.sh"]
