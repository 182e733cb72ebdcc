#!/usr/bin/env bash
# Snakemake runs this in a new environment, in the folder of the workflow: what Syno needs is there, this adds Syno itself.
set -euo pipefail
python -m pip install --no-deps .
