"""The paper's figures, of measurements in the one schema: what is computed, what is drawn, and whether the paper says so."""
