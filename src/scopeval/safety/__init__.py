"""Whether the promise about the cost was kept: certificate and guard."""
