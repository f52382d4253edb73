"""Training: how the encoder that ships with the package was made. Not part of the package.

sources, snapshot, readers, cleaning → gather: translated software text from public repositories
examples, noise, vocabulary, base → prepare: everything tokenised, in one folder
model → train → export: weights, then the file that ships

`training/README.md` has the commands, the data and whose it is.
"""
