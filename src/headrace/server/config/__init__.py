"""The configuration: directives and their types, files, the environment, CONFIG REWRITE."""
