"""Episodes to values, values to intervals and anytime-valid sequences."""
