"""The commands: their options and help. What they do is imported when they run."""
