"""Lexical search: terms of a text, their fields, and how well they match a query (BM25F).

tokens    text to terms, for documents and queries; a query to its clauses
postings  term to documents; corrections of spelling
bm25f     documents to postings; query terms to a score per slot
"""
