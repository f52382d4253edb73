"""Lexical search: terms of a text, their fields, and how well they match a query (BM25F).

tokens    text to terms, for documents and queries   synonyms         words used for one another
fields    weight of each field                       posting_builder  documents to postings
postings  term to documents, in flat arrays          query            text to query terms, clauses
bm25f     query terms to a score per slot            spelling         corrections of misspelt words
"""
