"""Makes the argument reader: which words of an intent are the value of which parameter."""
