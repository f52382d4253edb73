"""Dense search: texts as vectors of a small encoder that ships with the package.

encoder    text to vector          wordpiece   text to token numbers
vectors    one vector per slot, similarity
model/     the weights, the vocabulary, the model card
"""
