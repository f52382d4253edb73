"""JSON text processed in pieces, so that no step blocks the event loop for long.

json_codec         orjson with exact numbers, large values in pieces; estimates of sizes
chunked_decoder    decodes large texts
part_stream        a large value as a stream of its parts, freed in portions
"""
