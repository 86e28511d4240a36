"""The program `headrace`: its commands, their options, connections and output."""
