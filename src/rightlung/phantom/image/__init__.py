"""From a scene to pixels: anatomy in centimetres, tissue thickness, X-ray physics, and the resulting masks."""
