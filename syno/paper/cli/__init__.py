"""The commands of the paper's reproduction."""

from syno.paper.cli import ablations, artifacts, benches, joining

__all__ = ["ablations", "artifacts", "benches", "joining"]
