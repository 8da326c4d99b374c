"""Training: recipes, batches from phantoms and other sources, and the loop."""
