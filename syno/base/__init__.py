"""What every room needs and nothing of the field: errors, files, checksums, registries, validation."""
