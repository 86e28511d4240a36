"""Scripts in Lua: the interpreter with its sandbox, and the functions that scripts find in it."""
