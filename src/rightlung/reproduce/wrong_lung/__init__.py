"""Do attention maps follow the words? The experiments of "That's the Wrong Lung!" on any source with region boxes."""
