"""Building blocks of every package: errors, files with checksums, records, registries, validation of settings."""
