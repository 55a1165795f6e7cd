"""Stands in for AReaL where tests need only the shape of its launchers."""
