"""How a scene becomes pixels: anatomy in centimetres, tissue thickness, X-ray physics, and the masks that follow."""
