"""Commands that bring data into the form that it is read in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syno.cli.app import STAGES, app

convert = typer.Typer(help="Bring data into the form that it is read in.", no_args_is_help=True)
app.add_typer(convert, name="convert", rich_help_panel=STAGES)


@convert.command("imagenet")
def convert_imagenet(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="With a folder of pictures for each class.")],
    output: Annotated[Path, typer.Option(metavar="FILE.beton", help="Where they go; a record comes beside it.")],
    max_resolution: Annotated[int, typer.Option(min=1, help="Pixels of the longer side, at most.")] = 400,
    compress_probability: Annotated[float, typer.Option(min=0, max=1, help="The share that is kept as JPEG.")] = 0.10,
    quality: Annotated[int, typer.Option(min=1, max=100, help="Of these JPEGs.")] = 90,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 1,
) -> None:
    """Write a folder of pictures into a file for FFCV, as `data: imagenet` reads it."""
    from syno.data.beton_conversion import convert

    record = convert(
        folder,
        output,
        max_resolution=max_resolution,
        compress_probability=compress_probability,
        quality=quality,
        workers=workers,
    )
    typer.echo(f"{output}: {record.count:,} pictures in {len(record.names)} classes, {record.size:,} bytes, hash {record.hash}")
