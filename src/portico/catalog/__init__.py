"""Catalog of every server's tools, resources and prompts, held in one immutable snapshot.

The snapshot is replaced as a whole and read without a lock.

tool: an immutable, hashed definition · listing: fetches everything a server offers
entries: conversions between listing, manifest and catalog entry · snapshot: the catalog at one time
catalog: keeps the snapshot current · uri_template: matches resource URIs
listing_sync: lists a server when it is due; shares listings with other gateways
address: names and their lenient resolution
schema_outline, schema_types: render input schemas as safe text
categories, category_assignment: subjects that tools are browsed by
embeddings: vectors for the search index
"""
