"""Server: the door. The only room that knows the client's wire.

door (one SDK server per view; every request answered raw) · relay (the way back to a client while its call runs) ·
sessions (who is connected, and telling them what changed) · envelope (what each era wants around a result) · http,
stdio (two transports, one core) · replay (what a dropped stream can be resumed from)
"""
