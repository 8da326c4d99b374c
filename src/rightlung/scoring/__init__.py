"""Pure functions on arrays: how good is a map, a label, a sentence, and how sure are we of the number.

Nothing here knows a model, a file or a data set.
"""
