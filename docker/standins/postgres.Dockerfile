# A stand-in for postgres:15 where no image registry can be reached: Debian's PostgreSQL 15. It keeps the part of that
# image's contract which compose.yaml and the tests need: user, password and database from POSTGRES_* variables, and
# the server's own arguments.
FROM python:3.11-slim-bookworm
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql-15 \
    && rm -rf /var/lib/apt/lists/*
COPY postgres.sh /run.sh
ENV PATH=/usr/lib/postgresql/15/bin:$PATH PGDATA=/var/lib/postgresql/data
RUN mkdir -p "$PGDATA" && chown postgres:postgres "$PGDATA"
USER postgres
ENTRYPOINT ["sh", "/run.sh"]
CMD ["postgres"]
