"""How the weights of words behind the automatic categories are made: labels, seeds, a regularised
softmax."""
