"""JSON by kernels. Import only if kernels are enabled."""
