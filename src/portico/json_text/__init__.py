"""JSON as text: decoded, encoded, counted and freed in pieces, so that no step holds the event loop
for long.

json_codec (orjson with exact numbers) · size (counts before work) · chunked_decoder ·
chunked_encoder part_stream (a large value as a stream of its parts) · deferred_release (freed bit
by bit)
"""
