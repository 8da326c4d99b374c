"""Other people's checkpoints, read into the classes that they were made for."""
