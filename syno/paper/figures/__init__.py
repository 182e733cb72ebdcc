"""The paper's figures and headline numbers, computed from the table of measurements."""
