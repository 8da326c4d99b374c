"""Studies are made here: a patient that never was, its picture, its words, and the truth about both."""
