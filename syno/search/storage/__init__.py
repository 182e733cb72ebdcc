"""The storage of a study: journal files and databases, records, leases and their verification."""
