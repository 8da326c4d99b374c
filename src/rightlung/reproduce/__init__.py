"""Papers of the field measured again, each in a folder of its own."""
