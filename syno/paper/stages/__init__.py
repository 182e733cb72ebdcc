"""The stages of the paper's reproduction: the import of published data, joined results, headline numbers, ablations."""
