"""Tables and findings of the experiments, for the console and for pages alike."""
