"""The Structured Streaming door: a Spark data source named "onceflow-kafka", to read and write exactly once.

Imports pyspark when it is used; nothing else of onceflow imports it. Start reading in `data_source.py`.
"""
