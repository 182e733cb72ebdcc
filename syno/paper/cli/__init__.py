"""The commands of the paper's reproduction."""

from syno.paper.cli import ablations, artifacts, benches

__all__ = ["ablations", "artifacts", "benches"]
