"""Avro by kernels, for flat records. Import only if kernels are enabled."""
