"""The version of Headrace, for the program, INFO and the package."""

__version__ = "0.1.0"
