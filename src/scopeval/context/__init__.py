"""What no action changes: paths of weather, demand and prices, and the noise that they bring."""
