"""Critics by a model of the world: learned dynamics, or a simulator, and rollouts in them."""
