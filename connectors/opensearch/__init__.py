"""OpenSearch and Elasticsearch as the store that a sink writes to (sinks/opensearch.py). Needs the extra
`opensearch`."""
