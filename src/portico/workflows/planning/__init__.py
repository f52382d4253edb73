"""Planning: an intent in plain words enters, a workflow that can be passed back leaves. No tool is
called here.

suggesting (start there) → clauses (what is asked, one by one) → choosing (a tool for each, by the
caller's own search) → arranging (steps and what is missing) → filling (arguments from the words)
and joining (one's answer to another's) → left_out (what was said and is not in the plan) literals,
nouns, offers, vocabulary: what words, names of parameters and answers say remembered → templates:
plans that worked, with what was said in them taken out
"""
