"""Catalog of every server's tools, resources and prompts, held in one immutable snapshot.

The snapshot is replaced as a whole and read without a lock.

tool: an immutable, hashed definition · listing: fetches everything a server offers
entries: conversions between listing, manifest and catalog entry · snapshot: the catalog at one time
sync: keeps the snapshot current · replication: shares listings with other gateways
address, packed_names: names and their lenient resolution · uri_template: matches resource URIs
schema_outline, schema_references, constraints, visible_text: render input schemas as safe text
categories, classifier, taxonomy: subjects that tools are browsed by
search_documents, embeddings: input of the search index · heap: returns freed memory
"""
