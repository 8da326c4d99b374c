"""Models, one folder each; what they can do is said in their classes."""
