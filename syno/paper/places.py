"""The names of the paper: the numbers of its layers, and the paths of its published data, ablations and joined results.

Importing this module loads next to nothing, since the extension imports it for every command.
"""

from __future__ import annotations

from syno.run import IMPORT_RECORD, LOSSES, MEASUREMENTS

# The numbers that the paper gives the layers of its ResNet-34.
LAYERS = {
    "conv_io64": "L1",
    "conv_i64_o128": "L7",
    "conv_io128": "L8",
    "residual_i64_o128": "L9",
    "conv_i128_o256": "L16",
    "conv_io256": "L17",
    "residual_i128_o256": "L18",
    "conv_i256_o512": "L29",
    "conv_io512": "L30",
    "residual_i256_o512": "L31",
}
RESNET34 = "resnet34"  # the network whose layers have these numbers
IMAGE = (224, 224)  # height and width of the pictures for which the paper's layers are named
RECORD, NUMBERS = IMPORT_RECORD, "measurements.json"  # of an import of published data
ABLATION_TABLES = "ablation-"  # the beginning of the names of tables of ablations
ABLATION, ABLATION_TABLE = "ablations/{name}.json", f"{ABLATION_TABLES}{{name}}"
IMPORTED_TABLES = (MEASUREMENTS, LOSSES)  # of an import, and of joined results
JOINED = "joined.json"  # what was joined
HEADLINES = "headlines"  # the table of headline numbers
HOURS = {"search": 300, "training": 900, "tuning": 700}  # of GPUs: of a model, of all models' operators, on a device


def ablation_table(name: str) -> str:
    """Return the name of an ablation's table and figure."""
    return ABLATION_TABLE.format(name=name)
