"""How `headrace check` finds and checks archives."""
