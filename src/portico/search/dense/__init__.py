"""The meaning: texts as vectors of a small encoder that ships with the package, and how near they
are.

text       what the encoder reads of a document     wordpiece  text → token numbers
encoder    a text → its vector                      vectors    one vector per slot, and how near each is
model_files  its files, opened
model/     the weights, the vocabulary, the model card
"""
