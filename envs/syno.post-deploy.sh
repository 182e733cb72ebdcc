#!/usr/bin/env bash
# Snakemake runs this in the new environment, in the folder of the workflow.
set -euo pipefail
python -m pip install --constraint requirements.lock ".[workflow]"
