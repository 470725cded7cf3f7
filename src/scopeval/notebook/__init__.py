"""What a notebook shows: cards in HTML, sketches, axes to draw on, pandas tables."""
