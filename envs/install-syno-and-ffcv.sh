#!/usr/bin/env bash
# Snakemake runs this in the new environment for trainings, in the folder of the workflow: it adds Syno, and FFCV if it can be built.
set -euo pipefail
bash envs/install-syno.sh
python -m pip install ".[imagenet]" ||
  echo "FFCV cannot be built here; to read ImageNet without it: workload: {data_settings: {reader: torch}}"
