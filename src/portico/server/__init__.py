"""Server: the door. The only room that knows the client's wire.

door         one SDK server per view; every request answered raw → envelope (what each era wants), passable,
             large_text (large parts of answers, in pieces)
http, stdio  two transports, one core → entrances (a way in for each door), guards (who may come in), monitoring
             callers (who shares what with whom) · token_guard (wrong tokens)
admission    whose turn it is; whole_body, slow_clients, unread, unread_answers: what and who does not keep up
relay        the way back to a client while its call runs → questions (what it can be asked)
rounds       questions as `input_required` → handling (a request as a task), parked (while it waits), seal
sessions     who is connected, and telling them what changed → watching (resources), replay (streams that broke)
spans        a span for every request
"""
