"""The version of Syno, which is known also where Syno runs from its folder and is not installed."""

VERSION = "0.1.0"
