"""What Avro, JSON Schema and Protobuf share: a registry of schemas, and the header of its values."""
