"""With AReaL 1.0.4 itself (stage interop of tests/run.sh)."""
