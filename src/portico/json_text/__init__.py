"""JSON text processed in pieces, so that no step blocks the event loop for long.

json_codec         orjson with exact numbers
size               estimates before work is done
chunked_decoder, chunked_encoder, text_join
part_stream        a large value as a stream of its parts
deferred_release   frees large values in portions
"""
