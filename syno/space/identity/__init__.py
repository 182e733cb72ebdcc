"""When two operators are equal: canonical values at several sizes, and fingerprints."""
