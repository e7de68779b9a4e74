"""How long a test waits for what must come.

It ends what hangs and measures nothing, so it is the same everywhere, and long enough for a machine that is busy with
other things and ten times as slow.
"""
PATIENCE_S = 300
