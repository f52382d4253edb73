"""The words: which terms a text has, where, and how well they match a query's (BM25F).

tokens   text → terms, the same for documents and queries     kindred   words used for one another
fields   what each field is worth                              reading   documents → postings
postings term → documents, in flat arrays                      query     text → wanted terms and clauses
bm25f    wanted terms → a score per slot
"""
