"""Dense search: texts as vectors of a small encoder that ships with the package.

document_text  text the encoder reads of a document   wordpiece   text to token numbers
encoder        text to vector                         vectors     one vector per slot, similarity
vocabulary     token numbers, compact in memory       model_files opens the model's files
model/         the weights, the vocabulary, the model card
"""
